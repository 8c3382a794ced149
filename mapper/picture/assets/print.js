"use strict";
/* On paper: each picture in strips as high as a page, cut where no box is cut, so that its words stay legible. */

const SHEET = { width: 690, height: 940 }; // pixels that A4 and Letter both have within the margins
const TITLE = 50; // of one of two pictures
const LEAST = 200; // of a strip, in the picture's own size
const MARGIN = { top: 10, left: 2, across: 14, around: 3 }; // of the picture in its window, and of a box that is not cut

/* What must not be cut, from where to where: closed boxes, operations, titles of open boxes. */
function uncut(picture, node, y, box) {
  if (!box.at) return [[y - MARGIN.around - 8, y + box.height + MARGIN.around]]; // 8: the corners of those behind it
  const title = node.parent === null ? [] : [[y - MARGIN.around - 8, y + GAP.inside + GAP.head]];
  return [...title, ...box.at.flatMap(([child, , top, inner]) => uncut(picture, picture.nodes[child], y + top, inner))];
}

/* [from, to] of each strip; the first is lower by what stands above it. */
function strips(height, most, above, kept) {
  const found = [];
  for (let from = 0, room = most - above; from < height; room = most) {
    let to = Math.min(height, from + room);
    for (let cut; to < height && (cut = kept.find(([first, last]) => first < to && to < last)) && cut[0] > from + LEAST; ) to = cut[0];
    found.push([from, to]);
    from = to;
  }
  return found;
}

function onPaper(view, above) {
  const { picture } = view, root = picture.nodes[0];
  const wide = view.width + MARGIN.across, tall = view.height + MARGIN.across - MARGIN.top, scale = Math.min(1, SHEET.width / wide);
  const drawn = strips(tall, SHEET.height / scale, above / scale, uncut(picture, root, 0, picture.box(root))).map(([from, to]) => {
    const [top, high] = from === 0 ? [-MARGIN.top, to + MARGIN.top] : [from, to - from];
    return `<svg class="picture strip" xmlns="http://www.w3.org/2000/svg" aria-hidden="true" viewBox="${-MARGIN.left} ${top} ${wide} ${high}" width="${wide * scale}" height="${high * scale}">${view.svg.innerHTML}</svg>`;
  });
  const holder = element("div", { class: "strips" });
  holder.innerHTML = drawn.join("");
  view.place.append(holder);
  view.place.classList.add("printed");
}

function offPaper() {
  for (const view of views) {
    view.place.classList.remove("printed");
    for (const strip of view.place.querySelectorAll(".strips")) strip.remove();
  }
}

function setUpPrinting() {
  window.addEventListener("beforeprint", () => {
    offPaper();
    views.forEach((view, at) => onPaper(view, (view.prefix ? TITLE : 0) + (at ? 0 : $("title").closest("header").offsetHeight + 40))); // 40: a narrower page breaks its lines
  });
  window.addEventListener("afterprint", offPaper);
}
