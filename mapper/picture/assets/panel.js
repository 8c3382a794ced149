"use strict";
/* What is known of the selected block, beside the picture. */

function showPanel() {
  const panel = $("panel");
  if (!current) {
    panel.replaceChildren(...differences(), ...views.flatMap((view) => overview(view)));
    return;
  }
  const { view, node, path } = current;
  const lead = node.parent === null ? overview(view) : [
    element("h2", {}, node.title, node.indices ? ` ${node.indices}` : "", node.count > 1 ? ` × ${node.count}` : ""),
    element("p", { class: "path" }, node.place),
    path !== node.link && path !== node.place ? element("p", {}, "of these, ", element("b", { class: "path" }, path)) : "",
  ];
  panel.replaceChildren(...lead.filter(Boolean), ...about(view, node), ...facts(view, node), ...tensors(view, node), ...measured(view, node), ...source(view, node), ...(node.parent === null ? differences() : []));
  panel.scrollTop = 0;
}

function overview(view) {
  const doc = view.doc;
  return [
    element("h2", {}, doc.title),
    element("p", {}, doc.subtitle),
    element("p", {}, doc.meaning),
    doc.refused ? element("p", { class: "notice unknown" }, `no source is written: ${doc.refused}`) : "",
    doc.flows ? "" : element("p", { class: "notice unknown" }, ORDERED[Number(doc.notices.some((notice) => notice.kind === "question"))]),
    ...doc.notices.map(notice),
    doc.inputs.length ? element("h3", {}, "inputs") : "",
    doc.inputs.length ? element("div", { class: "inputs" }, table(["name", "shape", "type", "given"], doc.inputs)) : "",
  ].filter(Boolean);
}

function notice(found) {
  return element("div", { class: `notice ${found.kind}` }, element("b", {}, `${found.kind}: `), found.text, answers(found));
}

/* What a command line settles a question with, to copy: with each of its values, where these are few. */
function answers(found) {
  if (!found.set) return [];
  if (!found.values || !found.values.length) return [element("p", {}, element("code", {}, found.set), " ", copyButton(found.set, "copy"))];
  const asked = found.set.replace(/VALUE(?='?$)/, "");
  return [element("p", { class: "answers" }, "copy ", element("code", {}, asked), " with ", found.values.map((value) => copyButton(found.set.replace(/VALUE(?='?$)/, () => value), value)))];
}

function copyButton(text, label) {
  const button = element("button", { type: "button", "aria-label": `copy ${text}` }, label);
  button.addEventListener("click", () => {
    const done = () => { button.textContent = `${label === "copy" ? "" : `${label} `}copied`; };
    if (navigator.clipboard && window.isSecureContext) navigator.clipboard.writeText(text).then(done, () => copyBySelection(text, done));
    else copyBySelection(text, done);
  });
  return button;
}

/* Where a page from a file may not use the clipboard. */
function copyBySelection(text, done) {
  const field = element("textarea", {});
  field.value = text;
  document.body.append(field);
  field.select();
  if (document.execCommand("copy")) done();
  field.remove();
}

function differences() {
  return DATA.differences.length ? [element("h3", {}, "what differs"), element("pre", { class: "differences" }, DATA.differences.join("\n"))] : [];
}

function about(view, node) {
  const share = percent(node.bytes / (view.doc.nodes[0].bytes || 1));
  const rows = [
    element("p", {}, node.detail.startsWith(node.kind) ? node.detail : [node.kind.replace(/_/g, " "), node.detail].filter(Boolean).join(": ")),
    element("p", {}, `${node.size}, ${share} of all`, element("meter", { min: 0, max: 1, value: node.share, "aria-label": `${share} of all bytes` })),
    ...asked(view, node),
    node.mark && !node.asks.length ? element("p", { class: "notice unmapped" }, node.mark) : "",
    node.idle ? element("p", { class: "notice" }, `no forward reads it: ${node.idle}`) : "",
    node.differs ? element("p", { class: "notice finding" }, node.differs === "only" ? "only here" : "has a counterpart that differs") : "",
  ];
  if (node.flow) rows.push(element("h3", {}, "how it is computed"), element("p", {}, element("code", {}, node.flow), node.origin ? ` (${node.origin})` : ""));
  else if (node.origin) rows.push(element("h3", {}, "where its name comes from"), element("p", {}, element("code", {}, node.origin)));
  if (node.steps.length) rows.push(element("p", {}, `put together of ${node.steps.join(", ")}`));
  if (node.tensors.length) rows.push(element("p", {}, element("code", {}, `mapper rules explain ${node.tensors[0][0].replace(/\{(\d+)[^}]*\}/g, "$1")}`), " tells the rest"));
  return rows.filter(Boolean);
}

/* The questions about a block, with what answers them. */
function asked(view, node) {
  const questions = view.doc.notices.filter((found) => found.kind === "question");
  return node.asks.map((at) => notice(questions[at]));
}

function percent(share) {
  const rounded = Math.round(share * 1000) / 10;
  return share > 0 && rounded === 0 ? "< 0.1 %" : `${rounded} %`;
}

/* The tensors of a module, or of all in a block. */
function below(view, node) {
  return [...node.tensors, ...node.children.flatMap((child) => below(view, view.doc.nodes[child]))];
}

/* A name that may break where its parts do, and nowhere else unless it has to. */
function named(name) {
  return name.split(/(?<=[._/])(?=\w|\{)/).flatMap((part, at) => (at ? [document.createElement("wbr"), part] : [part]));
}

function tensors(view, node) {
  const found = below(view, node), total = view.doc.nodes[0].bytes || 1;
  if (!found.length) return [];
  const rows = found.flatMap(([key, shape, dtype, count, bytes]) => [
    element("tr", { class: "name" }, element("th", { scope: "rowgroup", colspan: 5 }, named(key))),
    element("tr", {}, [shape.map((size) => size.toLocaleString("en-US")).join(" × ") || "scalar", dtype, count > 1 ? `× ${count.toLocaleString("en-US")}` : "", inBytes(bytes), percent(bytes / total)]
      .map((cell, at) => element("td", { class: at > 1 ? "number" : false }, cell))),
  ]);
  const head = ["shape", "type", "how many", "bytes", "share"].map((word, at) => element("th", { scope: "col", class: at > 1 ? "number" : false }, word));
  return [element("h3", {}, "tensors"), element("table", { class: "tensors" }, element("thead", {}, element("tr", {}, head)), element("tbody", {}, rows))];
}

/* What was measured of the weights, where it was. */
function measured(view, node) {
  const found = below(view, node).filter(([key]) => view.doc.values[key]);
  if (!found.length) return [];
  const rows = found.flatMap(([key]) => {
    const { wrong, "over depth": depth, numbers, ...told } = view.doc.values[key];
    return [
      element("dt", {}, named(key)),
      wrong ? element("dd", { class: "wrong" }, wrong) : null,
      element("dd", { class: "charts" }, depth ? [bars(depth, "deviation over depth"), "over depth"] : [], numbers ? [bars(numbers, "histogram"), "numbers"] : []),
      element("dd", {}, Object.entries(told).map(([word, value]) => element("span", { class: "figure" }, `${word} ${value}`))),
    ];
  });
  return [element("h3", {}, "values"), element("dl", { class: "values" }, rows)];
}

const BARS = "▁▂▃▄▅▆▇█";

/* Bars that come as text: the eight heights, or the mark of what is wrong. */
function bars(text, label) {
  const svg = (name, attributes, ...children) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  };
  const wide = Math.max(3, Math.min(12, 240 / text.length)), tall = 28;
  const parts = [...text].flatMap((sign, at) => {
    const high = BARS.includes(sign) ? ((BARS.indexOf(sign) + 1) / BARS.length) * tall : tall;
    const bar = svg("rect", { x: at * wide, y: tall - high, width: wide - 1, height: high, class: BARS.includes(sign) ? "bar" : "bad" });
    return BARS.includes(sign) ? [bar] : [bar, svg("text", { x: at * wide + (wide - 1) / 2, y: tall - 9, "text-anchor": "middle" }, sign)];
  });
  return svg("svg", { class: "bars", width: text.length * wide, height: tall, role: "img", "aria-label": `${label}: ${text}` }, ...parts);
}

function facts(view, node) {
  const rows = node.facts.map((at) => view.doc.facts[at]).flatMap(([name, value, evidence, said, where, rule]) => [
    element("dt", {}, named(name), " = ", element("b", {}, value)),
    element("dd", { class: evidence }, named(`${evidence}: ${said}${where ? ` (at ${where})` : ""}${rule && !said.includes(rule) ? `; ${rule}` : ""}`)),
  ]);
  return rows.length ? [element("h3", {}, "facts, and how each is known"), element("dl", { class: "facts" }, rows)] : [];
}

function source(view, node) {
  if (!node.lines.length) return [];
  const [first, last, here] = node.lines;
  const listing = element("pre", { class: "source", tabindex: 0, role: "region", "aria-label": "generated source" });
  listing.append(...lines(view, first, last, here));
  const whole = element("button", { type: "button" }, "whole file");
  whole.addEventListener("click", () => {
    listing.replaceChildren(...lines(view, 1, view.doc.source.length, here));
    toLine(listing);
    whole.remove();
  });
  queueMicrotask(() => toLine(listing));
  return [element("h3", {}, `generated source, line ${here}`), listing, whole];
}

function lines(view, first, last, here) {
  return view.doc.source.slice(first - 1, last).map((text, at) => element("span", { "data-line": first + at, class: first + at === here ? "here" : false }, text));
}

function toLine(listing) {
  const here = listing.querySelector(".here");
  if (here) listing.scrollTop = here.offsetTop - listing.offsetTop - 120;
}

function table(head, rows) {
  const line = (cells, name, attributes) => element("tr", {}, cells.map((cell) => element(name, attributes, cell)));
  return element("table", {}, element("thead", {}, line(head, "th", { scope: "col" })), element("tbody", {}, rows.map((row) => line(row, "td", {}))));
}

function inBytes(bytes) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; bytes >= 1000 && at < units.length - 1; at += 1) bytes /= 1000;
  return `${at ? bytes.toFixed(1) : bytes} ${units[at]}`;
}
