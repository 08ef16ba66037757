// The entry point that TensorBoard calls in the view's own frame.

import { Page } from "./page.js";

export async function render() {
  const style = document.createElement("link");
  style.rel = "stylesheet";
  style.href = new URL("./style.css", import.meta.url).href;
  const styled = new Promise((done) => Object.assign(style, { onload: done, onerror: done }));
  document.head.append(style);
  await styled;
  document.documentElement.lang = "en";
  followTheme();
  const page = new Page(document.body);
  await page.reload();
}

// TensorBoard's own switch between light and dark is a class of its page, which frames ours.
function followTheme() {
  const outer = window.parent.document.body;
  const follow = () => {
    const isDark = outer.classList.contains("dark-mode");
    document.documentElement.style.colorScheme = isDark ? "dark" : "light";
  };
  follow();
  new MutationObserver(follow).observe(outer, { attributes: true, attributeFilter: ["class"] });
}
