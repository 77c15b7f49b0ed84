// Every head of every layer as a small map: one of a group of radio buttons, so that Tab reaches the group and arrows its heads.
import { element } from "../elements.js";
import { colours, largestOf, levelOf, plain } from "../numbers.js";

const WIDEST = 16; // heads side by side where they stand in an order of their own

export const numbers = packed => {
  const bytes = Uint8Array.from(atob(packed), sign => sign.charCodeAt(0));
  return new Float32Array(bytes.buffer);
};

export function paint(canvas, weights, height, width, largest, from = 0) {
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  const scale = colours().map(each => [1, 3, 5].map(at => parseInt(each.slice(at, at + 2), 16)));
  for (let place = 0; place < width * height; place += 1) {
    const weight = weights[from + place];
    const [red, green, blue] = Number.isFinite(weight) ? scale[levelOf(weight, largest)] : [140, 140, 140];
    image.data.set([red, green, blue, 255], 4 * place);
  }
  context.putImageData(image, 0, 0);
}

// `onchoose(layer, head)` is told which head is chosen.
export function overview({ onchoose }) {
  const root = element("div", { class: "heads", role: "radiogroup", "aria-label": "Heads" });
  let maps = new Map(), of = null, shape = null, size = null, marked = null, order = "place", entropies = null, distances = null;

  const key = (layer, head) => `${layer} ${head}`;
  const value = ({ layer, head }) => (order === "entropy" ? entropies : distances)?.[layer]?.[head];
  const said = ({ layer, head }) => {
    const more = [
      entropies?.[layer] ? `entropy ${plain(entropies[layer][head])} nats` : null,
      distances?.[layer] ? `${plain(distances[layer][head])} pieces away on average` : null,
    ].filter(each => each);
    return `Layer ${layer}, head ${head}${more.length ? `: ${more.join(", ")}` : ""}`;
  };

  function draw() {
    const all = [...maps.values()];
    const largest = largestOf(all.map(each => each.largest));
    for (const each of all) paint(each.canvas, each.weights, size[0], size[1], largest);
  }

  function place() {
    const isSorted = order !== "place" && (order === "entropy" ? entropies : distances)?.length === shape.layers;
    const all = [...maps.values()].sort((one, other) => one.layer - other.layer || one.head - other.head);
    if (isSorted) all.sort((one, other) => value(one) - value(other));
    const across = isSorted ? Math.min(shape.heads, WIDEST) : shape.heads;
    root.style.gridTemplateColumns = `${isSorted ? "" : "1.1rem "}repeat(${across}, minmax(24px, 3.5rem))`;
    root.classList.toggle("is-sorted", isSorted);
    const parts = [];
    if (!isSorted) {
      parts.push(element("span", { class: "corner", "aria-hidden": "true" }));
      for (let head = 0; head < shape.heads; head += 1) parts.push(element("span", { class: "number", "aria-hidden": "true" }, String(head)));
    }
    let layer = null;
    for (const each of all) {
      if (!isSorted && each.layer !== layer) parts.push(element("span", { class: "number row", "aria-hidden": "true" }, String((layer = each.layer))));
      each.button.title = said(each);
      each.button.setAttribute("aria-label", said(each));
      parts.push(each.button);
    }
    root.replaceChildren(...parts);
    root.sorted = all;
    mark(marked);
  }

  function mark(chosen) {
    marked = chosen;
    let first = true;
    const known = chosen !== null && maps.has(key(chosen.layer, chosen.head));
    for (const each of root.sorted ?? []) {
      const isChosen = known && each.layer === chosen.layer && each.head === chosen.head;
      each.button.setAttribute("aria-checked", String(isChosen));
      each.button.tabIndex = isChosen || (!known && first) ? 0 : -1;
      const inMean = chosen !== null && !isChosen && (chosen.layer === null || chosen.layer === each.layer) && (chosen.head === null || chosen.head === each.head);
      each.button.classList.toggle("is-in-mean", inMean);
      first = false;
    }
  }

  root.addEventListener("keydown", event => {
    const all = root.sorted ?? [], at = all.findIndex(({ button }) => button === document.activeElement);
    const across = root.classList.contains("is-sorted") ? Math.min(shape.heads, WIDEST) : shape.heads;
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -across, ArrowDown: across, Home: -at, End: all.length - 1 - at }[event.key];
    if (at < 0 || step === undefined) return;
    event.preventDefault();
    const next = all[at + step];
    if (!next) return;
    onchoose(next.layer, next.head);
    next.button.focus();
  });

  return {
    root,
    draw,
    mark,
    order(given) {
      order = given;
      if (shape) place();
    },
    // A layer that was asked for, or all of them at once; those of another text go, since each text has cells of its own.
    show({ layers, maps: packed, size: given, entropies: spread, distances: far }, model) {
      if (of !== model) maps = new Map();
      of = model;
      shape = { layers: model.n_layers, heads: model.n_heads };
      size = given;
      const weights = numbers(packed), cells = size[0] * size[1];
      layers.forEach((layer, row) => {
        for (let head = 0; head < shape.heads; head += 1) {
          const from = (row * shape.heads + head) * cells, own = weights.subarray(from, from + cells);
          let each = maps.get(key(layer, head));
          if (!each) {
            const canvas = element("canvas", { "aria-hidden": "true" });
            each = { layer, head, canvas, button: element("button", { type: "button", role: "radio", class: "head", onclick: () => onchoose(layer, head) }, canvas) };
            maps.set(key(layer, head), each);
          }
          Object.assign(each, { weights: own, largest: largestOf(own) });
        }
      });
      [entropies, distances] = layers.length === shape.layers ? [spread, far] : [null, null];
      place();
      draw();
    },
    get stats() {
      return { entropies, distances };
    },
  };
}
