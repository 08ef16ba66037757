// The entry point that TensorBoard calls in the view's own frame.

import { Page } from "./page.js";

export async function render() {
  await Promise.all(["./phases.css", "./style.css"].map(styled));
  document.documentElement.lang = "en";
  followTheme();
  const page = new Page(document.body);
  await page.reload();
}

function styled(sheet) {
  const link = document.createElement("link");
  link.rel = "stylesheet";
  link.href = new URL(sheet, import.meta.url).href;
  const done = new Promise((resolve) => Object.assign(link, { onload: resolve, onerror: resolve }));
  document.head.append(link);
  return done;
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
