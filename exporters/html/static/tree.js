// The tree of modules: inclusive times, numbered layers as one, those that stand out marked.

const OPEN_DEPTH = 4; // names of a path that are open at first

function isFolded() {
  return document.getElementById("fold").checked;
}

function shownNames(module) {
  return isFolded() ? module.folded : module.names;
}

class TreeNode {
  constructor(names) {
    Object.assign(this, sum(), { names, path: names.join("."), below: new Map(), members: new Set() });
    this.roofline = rooflineOfModules.get(this.path) ?? null;
    this.name = names.at(-1) === "*" ? names.slice(-2).join(".") : names.at(-1) ?? report.root;
    this.itself = { ...sum(), name: "(itself)", node: this, roofline: null, holds: place => this.holds(place) };
  }

  holds(place) {
    return place.module ? this.members.has(place.module) : !this.members.size;
  }

  child(name) {
    if (!this.below.has(name)) this.below.set(name, new TreeNode([...this.names, name]));
    return this.below.get(name);
  }
}

function moduleTree() {
  const root = new TreeNode([]);
  const none = new TreeNode(["(no module)"]);
  for (const site of sites) {
    for (const { place, time } of site.parts) {
      if (place.module) grow(root, site, place, time);
      else [none, none.itself].forEach(node => add(node, site, place.phase, time));
    }
  }
  return [root, none].filter(node => node.launches);
}

function grow(root, site, place, time) {
  let node = root;
  add(node, site, place.phase, time);
  for (const name of shownNames(place.module)) {
    node = node.child(name);
    add(node, site, place.phase, time);
  }
  node.members.add(place.module);
  add(node.itself, site, place.phase, time);
}

class ModuleTree {
  constructor() {
    const rooflines = [...rooflineOfModules.values()].map(roofline => ({ roofline }));
    this.columns = [{ title: "module", kind: "name", value: row => row.name, show: row => this.nameOf(row) },
      ...sumColumns(rooflines, () => largestOf(this.trees))];
    this.order = { column: this.columns[1], down: true };
    this.heads = element("tr");
    this.body = element("tbody");
    this.shut = new Map(); // path to whether it is shut, where that was chosen
    this.details = new Set(); // paths whose own launches are open
    this.term = "";
    this.root = element("div", { class: "table tree" }, barLegend("the whole model"),
      element("div", { class: "scroll" }, element("table", {}, element("thead", {}, this.heads), this.body)));
    this.refresh();
  }

  refresh() {
    this.trees = moduleTree();
    this.outliers = new Map(slice.outliers.map(([path, time, median]) => [path, { time, median }]));
    this.sort(this.order.column, this.order.down);
  }

  sort(column, down) {
    this.order = { column, down };
    const turned = each => this.sort(each, each === column ? !down : each.kind !== "name");
    keepingFocus(this.heads, () => this.heads.replaceChildren(...this.columns.map(each => columnHead(each, this.order, () => turned(each)))));
    this.draw();
  }

  draw() {
    this.elements = new Map();
    this.hits = this.term ? this.hitsBelow() : null;
    keepingFocus(this.root, () => this.body.replaceChildren(...this.ordered(this.trees).flatMap(node => this.rowsOf(node))));
  }

  ordered(nodes) {
    return sorted(nodes, this.order.column.value, this.order.down);
  }

  // What holds a hit below it.
  hitsBelow() {
    const above = new Set();
    const look = node => {
      const below = [...node.below.values()].map(look);
      if (below.some(Boolean)) above.add(node);
      return below.some(Boolean) || this.isHit(node);
    };
    this.trees.forEach(look);
    return above;
  }

  rowsOf(node) {
    const shown = [this.row(node)];
    if (this.details.has(node.path)) shown.push(this.detailRow(node));
    if (this.isOpen(node)) shown.push(...this.ordered([...node.below.values()]).flatMap(each => this.rowsOf(each)));
    return shown;
  }

  isOpen(node) {
    if (this.hits?.has(node)) return true;
    return !(this.shut.get(node.path) ?? node.names.length >= OPEN_DEPTH);
  }

  isHit(node) {
    const texts = [node.path, ...[...node.members].map(module => `${module.path} ${module.type}`)];
    return texts.some(text => text.toLowerCase().includes(this.term));
  }

  search(term) {
    this.term = term.toLowerCase();
    this.draw();
  }

  row(node) {
    const row = element("tr", { class: "opens", click: event => this.clicked(event, node) }, rowCells(this.columns, node));
    this.elements.set(node.path, row);
    return row;
  }

  nameOf(node) {
    const opens = node.below.size ? twist(this.isOpen(node), node.name, () => this.turn(node), `turn ${node.path}`) : element("span", { class: "twist" });
    const own = node.itself.launches ? this.ownButton(node) : null;
    const types = new Set([...node.members].map(module => module.type).filter(Boolean));
    const type = types.size === 1 ? element("span", { class: "quiet type" }, ` ${[...types][0]}`) : null;
    const label = element("span", { class: "label", title: [node.path, ...types].join(" ") }, node.name, this.countOf(node), type);
    return [element("div", { class: "indent", style: `--depth:${node.names.length}` }, opens, label, own), ...this.marks(node)];
  }

  countOf(node) {
    const several = node.names.at(-1) === "*" ? new Set(modulesBelow(node).map(module => module.names.slice(0, node.names.length).join("."))) : [];
    return several.size ? element("span", { class: "quiet" }, ` ×${several.size}`) : null;
  }

  ownButton(node) {
    const text = node.below.size ? `own ${sumText(node.itself.total)}` : "launches";
    return element("button", { type: "button", class: "own", "data-key": `own ${node.path}`, "aria-expanded": String(this.details.has(node.path)),
      click: () => this.turnDetail(node) }, text);
  }

  // Layers that stand out: of a folded node those that it stands for, else the node itself.
  marks(node) {
    const found = [...this.outliers].filter(([path]) => (isFolded() ? foldedNames(path).join(".") : path) === node.path);
    return found.map(([path, { time, median }]) => element("div", { class: "outlier" },
      `${path} ${sumText(time)}: sibling median ${sumText(median)}`));
  }

  clicked(event, node) {
    if (event.target.closest("a, button")) return;
    if (node.below.size) this.turn(node);
    else this.turnDetail(node);
  }

  turn(node) {
    this.shut.set(node.path, this.isOpen(node));
    this.draw();
  }

  turnDetail(node) {
    if (!this.details.delete(node.path)) this.details.add(node.path);
    this.draw();
  }

  detailRow(node) {
    const cell = element("td", { colspan: String(this.columns.length) }, launchesDetail(node.itself));
    return element("tr", { class: "detail" }, cell);
  }

  // Open all above a module, and return its row.
  reveal(module) {
    const names = shownNames(module);
    names.forEach((name, at) => this.shut.set(names.slice(0, at).join("."), false));
    this.details.add(names.join("."));
    this.draw();
    return this.elements.get(names.join(".")) ?? this.root;
  }
}

function modulesBelow(node) {
  return [...node.members, ...[...node.below.values()].flatMap(modulesBelow)];
}
