"use strict";
/* A graph and what of it is open, as SVG text. Runs in a browser and in a bare engine: no document is touched.

   A level (what stands directly in one node) is laid out by dagre on its own; an open node is a box as large as its
   level. `doc.nodes` and `doc.edges` are written by mapper/picture/document.py. */

const FONT = { title: 13, detail: 11, label: 12 };
const GAP = { node: 26, rank: 26, inside: 16, head: 24 };
const CORNER = 8; // radius where a line turns into the side of a sign
const APART = 16; // pixels between two lines that join the same nodes
const LOOSE_WIDTH = 760; // of a row of nodes that no edge touches
const ALIGNMENTS = [undefined, "UL", "UR", "DL", "DR"]; // of dagre, the first their mean: which of them is straightest depends on the graph
const WIDE = /[MW@%mw—…→×]/, NARROW = /[ .,:;'|!()\[\]ijlft]/;

function escapeText(text) {
  return String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);
}

/* Width in pixels of a text of this size: no engine without a document can measure. */
function textWidth(text, size) {
  let units = 0;
  for (const c of text) units += WIDE.test(c) ? 0.88 : NARROW.test(c) ? 0.36 : c > "\u2e80" ? 1 : 0.58;
  return Math.ceil(units * size);
}

function shortened(text, most) {
  return text.length > most ? `${text.slice(0, Math.ceil(most * 0.6) - 1)}…${text.slice(-Math.floor(most * 0.4))}` : text;
}

class Picture {
  constructor(doc) {
    this.doc = doc;
    this.nodes = doc.nodes;
    this.levels = new Map();
    for (const edge of doc.edges) {
      if (!this.levels.has(edge[0])) this.levels.set(edge[0], []);
      this.levels.get(edge[0]).push(edge);
    }
    this.open = new Set(doc.open);
    this.known = new Map(); // node -> [what is open in it, its box]
  }

  children(node) {
    return node.children.map((id) => this.nodes[id]);
  }

  isOpen(node) {
    return node.children.length > 0 && this.open.has(node.id);
  }

  /* What a layout of this node depends on. */
  state(node) {
    return this.isOpen(node) ? `${node.id}(${this.children(node).map((child) => this.state(child)).join("")})` : "";
  }

  /* {width, height, at: [[child, x, y, box]], lines: [[points, way]]}, x and y from the box's own corner */
  box(node) {
    const state = this.state(node);
    const known = this.known.get(node.id);
    if (known && known[0] === state) return known[1];
    const box = this.isOpen(node) ? this.openBox(node) : closedBox(node);
    box.piled = node.count > 1;
    box.isMark = node.kind === "port" || node.kind === "operation";
    box.isSign = node.kind === "operation" && node.title.length === 1;
    this.known.set(node.id, [state, box]);
    return box;
  }

  openBox(node) {
    const inside = this.level(node);
    const left = GAP.inside, top = GAP.inside + (node.parent === null ? 0 : GAP.head);
    const width = Math.max(inside.width + 2 * left, headWidth(node));
    const shift = left + (width - 2 * left - inside.width) / 2;
    return {
      width,
      height: inside.height + top + GAP.inside,
      at: inside.at.map(([child, x, y, box]) => [child, x + shift, y + top, box]),
      lines: inside.lines.map(([points, way]) => [points.map(([x, y]) => [x + shift, y + top]), way]),
    };
  }

  level(node) {
    const boxes = new Map(node.children.map((id) => [id, this.box(this.nodes[id])]));
    const edges = this.levels.get(node.id) || [];
    const joined = new Set(edges.flatMap((edge) => [edge[1], edge[2]]));
    const flowing = [...joined];
    const flow = flowing.length ? layered(flowing, edges, boxes) : { width: 0, height: 0, at: [], lines: [] };
    const loose = node.children.filter((id) => !joined.has(id) && this.nodes[id].kind !== "port");
    return beside(flow, loose.map((id) => [id, boxes.get(id)]), (id) => this.nodes[id]);
  }

  svg() {
    const root = this.nodes[0];
    const box = this.box(root);
    const parts = [];
    this.draw(root, 0, 0, box, parts, 1);
    return { width: Math.ceil(box.width), height: Math.ceil(box.height), body: parts.join("") };
  }

  draw(node, x, y, box, parts, depth) {
    if (node.kind === "port" || node.kind === "operation") {
      parts.push(drawMark(node, x, y, box));
      return;
    }
    const classes = ["node", `kind-${colour(node.kind)}`, node.mark ? "marked" : "", node.differs ? `differs-${node.differs}` : "",
      box.at ? "opened" : "closed", node.parent === null ? "root" : ""].filter(Boolean).join(" ");
    const expanded = node.children.length ? ` aria-expanded="${Boolean(box.at)}"` : "";
    parts.push(`<g class="${classes}" data-id="${node.id}" role="treeitem" aria-level="${depth}" tabindex="-1"${expanded} aria-label="${escapeText(spoken(node))}" transform="translate(${round(x)} ${round(y)})">`);
    parts.push(box.at ? drawFrame(node, box) : drawClosed(node, box));
    if (box.at) {
      for (const [points, way] of box.lines) parts.push(drawLine(points, way));
      parts.push('<g role="group">');
      for (const [child, left, top, inner] of box.at) this.draw(this.nodes[child], left, top, inner, parts, depth + 1);
      parts.push("</g>");
    }
    parts.push("</g>");
  }
}

/* What is drawn alike: the many kinds of modules in a few colours. */
function colour(kind) {
  const known = { attention: "attention", feed_forward: "feed_forward", moe: "moe", embedding: "embedding", Embedding: "embedding",
    norm: "norm", head: "head", layer: "layer", convolution: "convolution", recurrent: "recurrent", state_space: "recurrent",
    Linear: "linear", Parameter: "parameter", Buffer: "parameter", PReLU: "parameter", LSTM: "recurrent", GRU: "recurrent", RNN: "recurrent" };
  if (known[kind]) return known[kind];
  if (kind.endsWith("Norm")) return "norm";
  return kind.startsWith("Conv") ? "convolution" : "other";
}

function spoken(node) {
  const times = node.count > 1 ? `, ${node.count} times` : "";
  return `${node.title}${node.indices ? ` ${node.indices}` : ""}${times}, ${node.detail || (node.kind === "other" ? "block" : node.kind.replace(/_/g, " "))}, ${node.size}${node.mark ? `, ${node.mark}` : ""}`;
}

function caption(node) {
  const title = shortened(node.title, 34);
  return node.indices ? `${title} ${node.indices}` : title;
}

function detail(node) {
  return shortened(node.detail || node.size, 46);
}

function badge(node) {
  return node.count > 1 ? `× ${node.count.toLocaleString("en-US")}` : "";
}

function isFlagged(node) {
  return Boolean(node.mark || node.differs);
}

function headWidth(node) {
  const badgeWidth = node.count > 1 ? textWidth(badge(node), FONT.title) + 20 : 0;
  return textWidth(caption(node), FONT.title) + badgeWidth + 3 * GAP.inside + 20 + (isFlagged(node) ? 16 : 0);
}

function closedBox(node) {
  if (node.kind === "port") {
    return isDot(node) ? { width: 10, height: 10 } : { width: textWidth(node.title, FONT.label) + 24, height: 24 };
  }
  if (node.kind === "operation") {
    return node.title.length === 1 ? { width: 24, height: 24 } : { width: textWidth(node.title, FONT.label) + 22, height: 24 };
  }
  const width = Math.max(textWidth(detail(node), FONT.detail) + 28, headWidth(node) - (node.children.length ? 0 : 20), 96);
  return { width, height: 46 };
}

/* The one thing that goes into or out of a block needs no name. */
function isDot(node) {
  return node.alone;
}

/* One level by dagre, in the alignment that bends the fewest short edges. */
function layered(ids, edges, boxes) {
  let best = null;
  for (const align of ALIGNMENTS) {
    const tried = laidOut(ids, edges, boxes, align);
    if (best === null || tried.bent < best.bent - 1) best = tried;
    if (best.bent < 1) break; // straight as it is
  }
  return best;
}

function laidOut(ids, edges, boxes, align) {
  const graph = new dagre.graphlib.Graph({ multigraph: true });
  graph.setGraph({ rankdir: "TB", nodesep: GAP.node, edgesep: 18, ranksep: GAP.rank, align });
  for (const id of ids) graph.setNode(String(id), { width: boxes.get(id).width + piled(boxes.get(id)), height: boxes.get(id).height + piled(boxes.get(id)), large: Boolean(boxes.get(id).at), isSign: Boolean(boxes.get(id).isSign) });
  edges.forEach((edge, at) => graph.setEdge(String(edge[1]), String(edge[2]), { weight: edge[3] === "data" ? 3 : 1, way: edge[3] }, String(at)));
  dagre.layout(graph);
  const at = ids.map((id) => {
    const { x, y, width, height } = graph.node(String(id));
    return [id, x - width / 2, y - height / 2 + piled(boxes.get(id)), boxes.get(id)];
  });
  const standing = ids.map((id) => graph.node(String(id)));
  const bands = ranks(standing);
  let bent = 0;
  const sides = new Set(); // of signs, that a line goes into
  const between = new Map(); // how many lines lead from one node to another: data and a tie
  const lines = graph.edges().map((edge) => {
    const found = graph.edge(edge);
    const [from, to] = [graph.node(edge.v), graph.node(edge.w)];
    if (found.points.length <= 3) bent += Math.abs(from.x - to.x);
    const pair = `${edge.v} ${edge.w}`, nth = between.get(pair) || 0;
    between.set(pair, nth + 1);
    const points = throughRanks(found.points, bands);
    const led = intoSide(points, from, to, standing, sides) || anchored(points, from, to, nth * APART);
    return [from.y < to.y ? outOfRanks(led, bands.get(Math.round(from.y))[1], bands.get(Math.round(to.y))[0]) : led, found.way];
  });
  return withCorner(...(isReversed(at.filter(([id]) => !boxes.get(id).isMark)) ? mirrored(at, lines) : [at, lines]), bent);
}

/* Room for the corners of those behind a node that stands for several. */
function piled(box) {
  return box.piled ? 8 : 0;
}

/* Whether what stands side by side is mostly against the order of the statements: value, key, query. */
function isReversed(at) {
  let turned = 0;
  at.forEach(([, x, y, box], index) => at.slice(index + 1).forEach(([, otherX, otherY, other]) => {
    if (Math.abs(y + box.height / 2 - otherY - other.height / 2) < 2) turned += Math.sign(x - otherX);
  }));
  return turned > 0;
}

function mirrored(at, lines) {
  return [at.map(([id, x, y, box]) => [id, -x - box.width - piled(box), y, box]), lines.map(([points, way]) => [points.map(([x, y]) => [-x, y]), way])];
}

/* Where the nodes of each rank stand: their middle -> the top and the bottom of the tallest. */
function ranks(nodes) {
  const bands = new Map();
  for (const { y, height } of nodes) {
    const [top, bottom] = bands.get(Math.round(y)) || [Infinity, -Infinity];
    bands.set(Math.round(y), [Math.min(top, y - height / 2), Math.max(bottom, y + height / 2)]);
  }
  return bands;
}

/* A long line goes straight down beside the nodes of a rank, and aside only between two ranks. */
function throughRanks(points, bands) {
  const inner = points.slice(1, -1).flatMap(({ x, y }) => (bands.get(Math.round(y)) || []).map((side) => [x, side]));
  const [first, last] = [points[0], points[points.length - 1]];
  return [[first.x, first.y], ...inner, [last.x, last.y]];
}

/* A line leaves the rank that it starts in, and reaches that it ends in, straight: beside them stand taller nodes. */
function outOfRanks(points, bottom, top) {
  const [first, second] = points, last = points[points.length - 1], before = points[points.length - 2];
  const out = first[0] !== second[0] && first[1] < bottom - 1 && bottom < second[1] ? [[first[0], bottom]] : [];
  const into = before[0] !== last[0] && before[1] < top && top < last[1] - 1 ? [[last[0], top]] : [];
  return [first, ...out, ...points.slice(1, -1), ...into, last];
}

/* Edges leave at the bottom and arrive at the top, near the middle; one against the order stays as dagre has it. */
function anchored(points, from, to, aside) {
  if (from.y >= to.y) return points;
  const inner = points.slice(1, -1);
  const room = (node) => Math.max(0, node.large ? node.width / 2 - 16 : node.width * 0.3);
  const near = (node, x) => Math.min(Math.max(x, node.x - room(node)), node.x + room(node));
  const end = near(to, inner.length ? inner[inner.length - 1][0] : from.x);
  const start = near(from, inner.length ? inner[0][0] : end);
  return [[start + aside, from.y + from.height / 2], ...inner, [end + aside, to.y - to.height / 2]];
}

/* What comes from beside a sign, as a residual does, goes into its side, one line into each; null where it cannot. */
function intoSide(points, from, to, standing, sides) {
  const isLong = points.length > 3;
  const x = isLong ? points[points.length - 2][0] : from.x;
  const way = Math.sign(x - to.x), edge = to.x + way * to.width / 2, side = `${to.x} ${to.y} ${way}`;
  const between = (node) => node !== to && Math.abs(node.y - to.y) < (node.height + to.height) / 2 && (node.x - edge) * way > -node.width / 2 && (x - node.x) * way > -node.width / 2;
  if (!to.isSign || from.y >= to.y || Math.abs(x - to.x) < to.width || sides.has(side) || standing.some(between)) return null;
  sides.add(side);
  const down = isLong ? anchored(points, from, to, 0).slice(0, -1) : [[x, from.y + from.height / 2]];
  return [...down, [x, to.y], [edge, to.y]];
}

/* The level moved so that nothing, lines included, lies left of or above its corner. */
function withCorner(at, lines, bent) {
  const xs = [...at.flatMap(([, x, , box]) => [x, x + box.width]), ...lines.flatMap(([points]) => points.map((point) => point[0]))];
  const ys = [...at.flatMap(([, , y, box]) => [y, y + box.height]), ...lines.flatMap(([points]) => points.map((point) => point[1]))];
  const [left, top] = [Math.min(...xs), Math.min(...ys)];
  return {
    width: Math.max(...xs) - left,
    height: Math.max(...ys) - top,
    at: at.map(([id, x, y, box]) => [id, x - left, y - top, box]),
    lines: lines.map(([points, way]) => [points.map(([x, y]) => [x - left, y - top]), way]),
    bent,
  };
}

/* Nodes that no edge touches, in rows below. */
function beside(flow, loose) {
  const result = { width: flow.width, height: flow.height, at: [...flow.at], lines: flow.lines };
  const most = Math.max(flow.width, Math.min(LOOSE_WIDTH, loose.reduce((sum, [, box]) => sum + box.width + GAP.node, 0)));
  let x = 0, y = flow.height ? flow.height + GAP.rank : 0, tall = 0;
  for (const [id, box] of loose) {
    if (x > 0 && x + box.width > most) [x, y, tall] = [0, y + tall + GAP.node / 2, 0];
    result.at.push([id, x, y, box]);
    result.width = Math.max(result.width, x + box.width);
    result.height = Math.max(result.height, y + box.height);
    [x, tall] = [x + box.width + GAP.node / 2, Math.max(tall, box.height)];
  }
  return result;
}

function round(number) {
  return Math.round(number * 10) / 10;
}

function stack(node, box) {
  if (node.count < 2) return "";
  return [8, 4].map((by) => `<rect class="stack" x="${by}" y="${-by}" width="${round(box.width)}" height="${round(box.height)}" rx="9"/>`).join("");
}

function drawFrame(node, box) {
  const frame = `<rect class="frame" width="${round(box.width)}" height="${round(box.height)}" rx="10"/>`;
  return node.parent === null ? frame : stack(node, box) + frame + head(node, 20, box.width, true);
}

function drawClosed(node, box) {
  const bar = Math.max(node.bytes ? 1.5 : 0, (box.width - 16) * node.share);
  const mark = isFlagged(node) ? `<text class="flag" x="${round(box.width - (node.children.length ? 30 : 12))}" y="19" text-anchor="end">${node.mark ? "!" : "≠"}</text>` : "";
  return stack(node, box) + `<rect class="frame" width="${round(box.width)}" height="${box.height}" rx="8"/>` + head(node, 18, box.width, false)
    + `<text class="detail" x="12" y="33">${escapeText(detail(node))}</text>${mark}`
    + `<rect class="track" x="8" y="39" width="${round(box.width - 16)}" height="3" rx="1.5"/><rect class="bar" x="8" y="39" width="${round(bar)}" height="3" rx="1.5"/>`;
}

function head(node, y, width, isOpen) {
  const turn = node.children.length ? `<text class="turn" x="${round(width - 16)}" y="${y}" aria-hidden="true">${isOpen ? "−" : "+"}</text>` : "";
  const times = node.count > 1 ? `<tspan class="times" dx="8">${badge(node)}</tspan>` : "";
  return `<text class="title" x="12" y="${y}">${escapeText(caption(node))}${times}</text>${turn}`;
}

function drawMark(node, x, y, box) {
  const middle = `x="${round(box.width / 2)}" y="${round(box.height / 2 + 4)}" text-anchor="middle"`;
  const place = `transform="translate(${round(x)} ${round(y)})"`;
  if (node.kind === "port" && isDot(node)) return `<g class="port dot" ${place}><circle cx="5" cy="5" r="3.5"/></g>`;
  const side = node.kind === "port" ? `port ${node.role}` : node.title.length === 1 ? "operation sign" : "operation";
  return `<g class="${side}" ${place}><rect width="${round(box.width)}" height="${box.height}" rx="12"/><text ${middle}>${escapeText(node.title)}</text></g>`;
}

/* A line with round corners through the points. */
function drawLine(points, way) {
  let path = `M${round(points[0][0])} ${round(points[0][1])}`;
  points.slice(1).forEach(([x, y], at) => {
    const [fromX, fromY] = points[at], half = (fromY + y) / 2;
    const next = points[at + 2];
    if (next && next[1] === y) path += `L${round(x)} ${round(y - CORNER)}Q${round(x)} ${round(y)} ${round(x + Math.sign(next[0] - x) * CORNER)} ${round(y)}`;
    else if (fromY === y) path += `L${round(x)} ${round(y)}`;
    else path += Math.abs(fromX - x) < 0.5 ? `L${round(x)} ${round(y)}` : `C${round(fromX)} ${round(half)} ${round(x)} ${round(half)} ${round(x)} ${round(y)}`;
  });
  const head = way === "order" ? "" : ' marker-end="url(#arrow)"'; // an order of names leads nowhere
  return `<path class="line ${way}" d="${path}"${head}/>`;
}

const ARROW = '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto-start-reverse"><path d="M0 0.8 L8 4 L0 7.2 z"/></marker></defs>';

/* A whole file. `style` is draw.css. */
function standalone(doc, style) {
  const picture = new Picture(doc);
  const { width, height, body } = picture.svg();
  const top = 58, left = 14, wide = Math.max(width, textWidth(doc.title, 17), textWidth(doc.subtitle, 12)) + 2 * left;
  const shift = (wide - width) / 2;
  return `<svg xmlns="http://www.w3.org/2000/svg" class="picture still" width="${wide}" height="${height + top + left}" viewBox="0 0 ${wide} ${height + top + left}" role="img" aria-label="${escapeText(doc.title)}">`
    + `<title>${escapeText(doc.title)}</title><style>${style}</style>${ARROW}<rect class="paper" width="100%" height="100%"/>`
    + `<text class="heading" x="${left}" y="27">${escapeText(doc.title)}</text><text class="detail" x="${left}" y="46">${escapeText(doc.subtitle)}</text>`
    + `<g transform="translate(${round(shift)} ${top})">${body}</g></svg>\n`;
}
