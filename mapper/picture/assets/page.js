"use strict";
/* The page: pictures of one or two documents, what is selected beside them, search and links. All text of a checkpoint
   is set as text; the only markup made is draw.js's, which escapes. */

const DATA = JSON.parse(document.getElementById("data").textContent);
const SHOWN_RESULTS = 50;
const SLICE = 20; // milliseconds of work in one piece
const ORDERED = ["Nothing says how the data goes: the lines are the order of the names.",
  "How the data goes is drawn once the questions are answered: until then the lines are the order of the names."]; // without questions, with them
const $ = (id) => document.getElementById(id);
const views = [];
let current = null; // {view, node, path}: what the panel shows
let scale = 0; // of the pictures; 0: as wide as there is room

/* An element with attributes and children; texts become text. */
function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "onclick") made.addEventListener("click", value);
    else if (value !== false && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return made;
}

class View {
  constructor(doc, prefix) {
    this.doc = doc;
    this.prefix = prefix; // of its links: "", or "a:" and "b:" where two are compared
    this.picture = new Picture(doc);
    this.holder = element("div", { class: "holder" });
    this.place = element("div", { class: "view" }, prefix ? element("h2", {}, doc.title) : "", this.holder);
    this.byLink = new Map(doc.nodes.filter((node) => node.link !== "").map((node) => [node.link, node]));
    this.holder.addEventListener("click", (event) => this.clicked(event));
    this.holder.addEventListener("keydown", (event) => this.key(event));
    this.holder.addEventListener("focusin", (event) => this.focused(event.target.closest(".node")));
  }

  render() {
    const { width, height, body } = this.picture.svg();
    this.width = width;
    this.height = height;
    this.holder.innerHTML = `<svg class="picture" xmlns="http://www.w3.org/2000/svg" viewBox="-2 -10 ${width + 14} ${height + 14}" role="tree" aria-label="${escapeText(this.doc.title)}">${ARROW}${body}</svg>`;
    this.svg = this.holder.firstChild;
    this.sized();
    this.marked();
  }

  /* Lays out what is open, the innermost first, and gives way to the browser in between. */
  async prepare() {
    let since = performance.now();
    for (const node of this.doc.nodes.filter((node) => this.picture.isOpen(node)).reverse()) { // what a node holds has larger numbers
      this.picture.box(node);
      if (performance.now() - since < SLICE) continue;
      await new Promise((resume) => { setTimeout(resume); });
      since = performance.now();
    }
  }

  sized() {
    if (!this.svg) return;
    const room = $("stage").clientWidth / views.length - 40;
    const factor = scale || Math.min(1, room / (this.width + 14));
    this.svg.setAttribute("width", Math.round((this.width + 14) * factor));
    this.svg.setAttribute("height", Math.round((this.height + 14) * factor));
  }

  /* The drawn node, if all around it is open. */
  drawn(node) {
    return this.holder.querySelector(`.node[data-id="${node.id}"]`);
  }

  marked() {
    for (const old of this.holder.querySelectorAll(".chosen")) old.classList.remove("chosen");
    for (const old of this.holder.querySelectorAll('[tabindex="0"]')) old.setAttribute("tabindex", "-1");
    const chosen = current && current.view === this ? this.drawn(current.node) : null;
    if (chosen) chosen.classList.add("chosen");
    (chosen || this.drawn(this.doc.nodes[0])).setAttribute("tabindex", "0");
  }

  reveal(node) {
    let around = node.parent, changed = false;
    while (around !== null) {
      if (!this.picture.open.has(around)) changed = this.picture.open.add(around) && true;
      around = this.doc.nodes[around].parent;
    }
    if (changed) this.render();
  }

  toggle(node, open) {
    if (!node.children.length || node.parent === null) return;
    if (open) this.picture.open.add(node.id);
    else this.picture.open.delete(node.id);
    this.render();
    this.focus(node);
  }

  focus(node) {
    const drawn = this.drawn(node);
    if (!drawn) return;
    this.focused(drawn);
    drawn.focus({ preventScroll: true });
    const frame = drawn.querySelector(".frame").getBoundingClientRect(), stage = $("stage").getBoundingClientRect();
    if (frame.top < stage.top || frame.top > stage.bottom - 60) $("stage").scrollBy({ top: frame.top - stage.top - 80 });
    if (frame.left < stage.left || frame.left > stage.right - 60) $("stage").scrollBy({ left: frame.left - stage.left - 40 });
  }

  focused(drawn) {
    if (!drawn) return;
    for (const old of this.holder.querySelectorAll('[tabindex="0"]')) old.setAttribute("tabindex", "-1");
    drawn.setAttribute("tabindex", "0");
  }

  nodeOf(target) {
    const drawn = target.closest(".node");
    return drawn ? this.doc.nodes[Number(drawn.dataset.id)] : null;
  }

  clicked(event) {
    const node = this.nodeOf(event.target);
    if (!node) return;
    if (event.target.classList.contains("turn")) this.toggle(node, !this.picture.isOpen(node));
    else if (current && current.node === node && current.view === this && !this.picture.isOpen(node)) this.toggle(node, true);
    choose(this, node);
  }

  key(event) {
    const node = this.nodeOf(event.target);
    if (!node || event.ctrlKey || event.metaKey || event.altKey) return;
    const act = {
      ArrowDown: () => this.move(node, 1),
      ArrowUp: () => this.move(node, -1),
      ArrowRight: () => (this.picture.isOpen(node) ? this.into(node) : this.toggle(node, true)),
      ArrowLeft: () => (this.picture.isOpen(node) && node.parent !== null ? this.toggle(node, false) : this.out(node)),
      Home: () => this.focus(this.doc.nodes[0]),
      Enter: () => choose(this, node, true),
      " ": () => this.toggle(node, !this.picture.isOpen(node)),
      Escape: () => this.out(node),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    event.stopPropagation();
    act();
  }

  /* The nodes as they stand, from the top down. */
  inOrder() {
    return [...this.holder.querySelectorAll(".node")].sort((one, other) => {
      const [a, b] = [one.getBoundingClientRect(), other.getBoundingClientRect()];
      return a.top - b.top || a.left - b.left;
    });
  }

  move(node, by) {
    const all = this.inOrder();
    const next = all[all.indexOf(this.drawn(node)) + by];
    if (next) this.focus(this.nodeOf(next));
  }

  into(node) {
    const inside = this.inOrder().map((drawn) => this.nodeOf(drawn)).find((child) => child.parent === node.id);
    if (inside) this.focus(inside);
  }

  out(node) {
    if (node.parent !== null) this.focus(this.doc.nodes[node.parent]);
  }
}

/* Selects a node; `path` is one of its instances, "encoder.layer.3.attention". */
function choose(view, node, enter = false, path = "") {
  current = { view, node, path: path || node.link };
  view.reveal(node);
  for (const other of views) other.marked();
  const link = `#${encodeLink(view.prefix + current.path)}`;
  try { if (location.hash !== link) history.replaceState(null, "", link); } catch { /* a page inside a notebook has no address */ }
  showPanel();
  if (enter) $("panel").focus();
}

function encodeLink(text) {
  return encodeURIComponent(text).replace(/%2F/g, "/").replace(/%3A/g, ":").replace(/%7E/g, "~");
}

/* `layers.{0..11}.norm`, `layers.{0..2,4..10..2}.norm` as what its members match; each number stands in a group. */
function pattern(place) {
  const ranges = [];
  const text = place.split(/(\{[0-9.,]+\})/).map((part) => {
    if (!/^\{[0-9.,]+\}$/.test(part)) return part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
    ranges.push(part.slice(1, -1));
    return "(\\d+)";
  }).join("");
  return [new RegExp(`^${text}$`), ranges];
}

function inRange(number, range) {
  return range.split(",").some((run) => {
    const [first, last = first, step = 1] = run.split("..").map(Number);
    return first <= Number(number) && Number(number) <= last && (Number(number) - first) % step === 0;
  });
}

/* Whether a concrete name is one of a folded one. */
function isMember(name, place) {
  const [expression, ranges] = pattern(place);
  const found = expression.exec(name);
  return found !== null && ranges.every((range, at) => inRange(found[at + 1], range));
}

/* The node that a link names: as it is written, or as one of equal ones; of a tensor, its module. */
function linked(view, link) {
  const found = view.byLink.get(link);
  if (found) return found;
  const [path, role] = [link.replace(/\/[^/]*$/, ""), link.includes("/") ? link.replace(/^.*\//, "") : null];
  const nodes = view.doc.nodes.filter((node) => node.link !== "");
  return nodes.find((node) => role === null && isMember(path, node.place) && !node.link.includes("/"))
    || nodes.find((node) => node.role === role && isMember(path, node.place))
    || nodes.find((node) => node.tensors.some((tensor) => isMember(link, tensor[0]))) || null;
}

function follow() {
  let link;
  try { link = decodeURIComponent(location.hash.slice(1)); } catch { return; }
  if (link === "panel" || link === "") return;
  for (const view of views) {
    if (!link.startsWith(view.prefix)) continue;
    const path = link.slice(view.prefix.length), node = linked(view, path);
    if (!node) continue;
    choose(view, node, false, path);
    view.focus(node);
    return;
  }
}

/* ---- search ---- */

/* Every node with the text that a search looks through, numbers of folded names and of the query alike left open. */
function searchable() {
  return views.flatMap((view) => view.doc.nodes.filter((node) => node.link !== "").map((node) => {
    const shapes = node.tensors.flatMap(([key, shape, dtype]) => [key, shape.join("x"), `[${shape.join(",")}]`, dtype]);
    const text = [node.title, node.role, node.role.replace(/_/g, " "), node.kind, node.place, node.detail, node.mark, ...shapes].join("\n").toLowerCase();
    return { view, node, text, open: text.replace(/\{[0-9.,]+\}/g, "#").replace(/\.\d+(?=\.|\n|$)/g, ".#") };
  }));
}

function search(index, query) {
  const words = query.trim().toLowerCase().replace(/\s*[×x]\s*(?=\d)/g, (all, at, whole) => (/\d$/.test(whole.slice(0, at)) ? "x" : all)).split(/\s+/).filter(Boolean);
  if (!words.length) return [];
  const open = words.map((word) => (word.includes(".") ? word.replace(/(^|\.)\d+(?=\.|$)/g, "$1#") : word));
  const found = index.filter((entry) => words.every((word, at) => entry.text.includes(word) || (word.includes(".") && entry.open.includes(open[at]))));
  const rank = (entry) => (entry.node.title.toLowerCase() === words.join(" ") ? 0 : entry.node.tensors.length ? 1 : 2);
  return found.map((entry, at) => [rank(entry), at, entry]).sort((a, b) => a[0] - b[0] || a[1] - b[1]).map((entry) => entry[2]);
}

function setUpSearch() {
  const [field, list] = [$("query"), $("results")];
  let index = null, found = [], at = -1;
  const close = () => {
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
  };
  const point = (next) => {
    at = Math.max(0, Math.min(next, found.length - 1));
    [...list.children].forEach((row, index) => row.setAttribute("aria-selected", String(index === at)));
    const row = list.children[at];
    if (!row) return;
    field.setAttribute("aria-activedescendant", row.id);
    row.scrollIntoView({ block: "nearest" });
  };
  const take = (entry) => {
    const typed = field.value.trim();
    const path = isMember(typed, entry.node.place) ? typed : "";
    close();
    choose(entry.view, entry.node, false, path);
    entry.view.focus(entry.node);
  };
  field.addEventListener("input", () => {
    index = index || searchable();
    found = search(index, field.value).slice(0, SHOWN_RESULTS);
    list.replaceChildren(...found.map((entry, number) => {
      const row = element("li", { id: `result-${number}`, role: "option", "aria-selected": "false" }, entry.node.title, entry.node.count > 1 ? ` × ${entry.node.count}` : "", element("small", {}, `${entry.view.prefix}${entry.node.place} · ${entry.node.detail || entry.node.size}`));
      row.addEventListener("mousedown", (event) => event.preventDefault());
      row.addEventListener("click", () => take(entry));
      return row;
    }), ...(found.length || !field.value.trim() ? [] : [element("li", { role: "option", "aria-disabled": "true", "aria-selected": "false" }, "nothing has this")]));
    list.hidden = !list.children.length;
    field.setAttribute("aria-expanded", String(!list.hidden));
    if (found.length) point(0);
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "ArrowUp") point(at + (event.key === "ArrowDown" ? 1 : -1));
    else if (event.key === "Enter" && found[at]) take(found[at]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  field.addEventListener("blur", close);
}

/* ---- the whole ---- */

function setUpTools() {
  const zoom = (by) => {
    const width = views[0].svg.clientWidth / (views[0].width + 14);
    scale = by ? Math.min(4, Math.max(0.1, (scale || width) * by)) : 0;
    $("fit").setAttribute("aria-pressed", String(!scale));
    for (const view of views) view.sized();
  };
  const open = async (all) => {
    for (const view of views) {
      view.picture.open = new Set(all ? view.doc.nodes.filter((node) => node.children.length).map((node) => node.id) : [0]);
      await view.prepare();
      view.render();
    }
  };
  $("fit").addEventListener("click", () => zoom(0));
  $("smaller").addEventListener("click", () => zoom(0.8));
  $("larger").addEventListener("click", () => zoom(1.25));
  $("unfold").addEventListener("click", () => open(true));
  $("fold").addEventListener("click", () => open(false));
  window.addEventListener("resize", () => { for (const view of views) view.sized(); });
  window.addEventListener("hashchange", follow);
  document.addEventListener("keydown", (event) => {
    if (event.key === "/" && event.target !== $("query")) {
      event.preventDefault();
      $("query").focus();
    } else if (event.key === "Escape") {
      const { view, node } = current || { view: views[0], node: views[0].doc.nodes[0] };
      view.focus(node);
    }
  });
}

async function start() {
  const compared = DATA.documents.length > 1;
  DATA.documents.forEach((doc, at) => views.push(new View(doc, compared ? `${"ab"[at]}:` : "")));
  $("title").textContent = compared ? document.title : DATA.documents[0].title;
  $("subtitle").textContent = compared ? DATA.documents.map((doc) => doc.subtitle).join("  |  ") : DATA.documents[0].subtitle;
  $("views").replaceChildren(...views.map((view) => view.place));
  showPanel();
  for (const view of views) {
    await view.prepare();
    view.render();
  }
  setUpSearch();
  setUpTools();
  setUpPrinting();
  follow();
  document.body.classList.add("ready");
}

start();
