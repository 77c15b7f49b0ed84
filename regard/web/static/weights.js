// Weights as every room draws them: a list with bars, a matrix of cells, and the legend of the scale.
// All are SVG, so that what is seen is what is saved; widths are in units of the drawing.
import { drawing, put, shape, text, write } from "./elements.js";
import { inCell, largestOf, legend, levelOf, LEVELS, percent, threeDigits } from "./numbers.js";

const LETTER = 7.2; // about as wide as a letter of 12 units is
const SPARE = 6;
const PERCENT = 58; // units for a weight in percents, "<0.01%" at most

export const cut = (words, most) => {
  const letters = [...words];
  return letters.length <= most ? words : `${letters.slice(0, Math.max(most - 1, 1)).join("")}…`;
};
const widest = (names, most) => Math.min(Math.max(...names.map(each => [...each].length), 1), most);

// Entries are { name, weight, more }: `more` stands between the name and the bar. Bars run to the largest weight.
// `onchoose` is told the place of an entry that is clicked; whoever draws gives the keyboard a way of its own.
export const bars = (entries, { onchoose, ...options } = {}) => new Bars(onchoose).show(entries, options);

// The same, for weights that move: rows are made once, and only what changes is written.
export class Bars {
  constructor(onchoose) {
    this.onchoose = onchoose;
    this.rows = [];
    this.list = shape("g");
    this.heads = ["start", "end", "end"].map(anchor => text(0, 0, "", "quiet small", anchor));
    this.svg = drawing(1, 1, "weights", ...this.heads, this.list);
  }

  // What stands above the columns: names, what is between, weights.
  showHeads(heads, places, y) {
    this.heads.forEach((head, column) => {
      write(head, heads?.[column] ?? "");
      put(head, { x: places[column], y });
    });
  }

  show(entries, { width = 400, label = "weights", height = 22, names = 18, largest, chosen, heads = null, say = percent, sayExactly = threeDigits } = {}) {
    const most = largest ?? largestOf(entries.map(({ weight }) => Math.abs(weight)));
    const left = widest([...entries.map(({ name }) => name), heads?.[0] ?? ""], names) * LETTER + SPARE;
    const details = entries.some(({ more }) => more) ? widest([...entries.map(({ more }) => more ?? ""), heads?.[1] ?? ""], 14) * LETTER + SPARE : 0;
    const shares = entries.map(({ weight }) => say(weight)), above = heads ? height : 0;
    const from = left + details + Math.max(PERCENT, widest(shares, 12) * LETTER + 3 * SPARE), room = Math.max(width - from, 40);
    while (this.rows.length < entries.length) this.rows.push(this.row(this.rows.length, height));
    while (this.rows.length > entries.length) this.rows.pop().group.remove();
    put(this.svg, { viewBox: `0 0 ${width} ${Math.max(entries.length, 1) * height + above}`, "aria-label": label });
    this.list.setAttribute("transform", `translate(0 ${above})`);
    this.showHeads(heads, [0, left + details - SPARE, from - 8], height / 2 + 4);
    entries.forEach(({ name, weight, more }, place) => {
      const { group, title, back, called, told, share, bar } = this.rows[place];
      put(group, { class: place === chosen ? "entry is-chosen" : "entry" });
      put(back, { width });
      put(called, { class: place === chosen ? "ink strong" : "ink" });
      put(told, { x: left + details - SPARE });
      put(share, { x: from - 8 });
      put(bar, { x: from, width: Math.max((room * Math.abs(weight)) / most || 0, 0), class: weight < 0 ? "bar is-below" : "bar" });
      write(title, `${name}: ${sayExactly(weight)}`);
      write(called, cut(name, names));
      write(told, cut(more ?? "", 14));
      write(share, shares[place]);
    });
    return this.svg;
  }

  row(place, height) {
    const middle = (place + 0.5) * height;
    const row = {
      title: shape("title"), back: shape("rect", { x: 0, y: middle - height / 2, height, fill: "transparent" }),
      called: text(0, middle + 4, ""), told: text(0, middle + 4, "", "quiet number", "end"), share: text(0, middle + 4, "", "ink number", "end"),
      bar: shape("rect", { y: middle - height * 0.3, height: height * 0.6, rx: 1.5, class: "bar" }),
    };
    row.group = shape("g", { "data-place": place, onclick: this.onchoose ? () => this.onchoose(place) : null }, ...Object.values(row));
    this.list.append(row.group);
    return row;
  }
}

// The scale from 0 to the largest weight, with five entries at equal distances.
export function legendOf(largest, { width = 220, label = "colours of weights" } = {}) {
  const wide = width / (LEVELS + 1);
  return drawing(width, 34, `${label}, from 0% to ${threeDigits(largest)}`,
    ...Array.from({ length: LEVELS + 1 }, (_, level) =>
      shape("rect", { x: level * wide, y: 0, width: wide + 0.5, height: 12, fill: `var(--w${level})` })),
    shape("rect", { x: 0.5, y: 0.5, width: width - 1, height: 11, class: "faint" }),
    ...legend(largest).map(([place, weight]) =>
      text(place * width, 28, threeDigits(weight), "quiet small number", place === 0 ? "start" : place === 1 ? "end" : "middle")));
}

// Rows are queries, columns are keys; `weights` is a list of rows. `numbers`: percents in cells, where they are large enough.
// `onchoose(row, column)` is told the cell that is clicked, `onpoint(row, column)` the one that is pointed at (none: undefined).
export function matrix({ rows, columns, weights, label, largest, cell, width = 640, numbers = true, chosen, onchoose, onpoint }) {
  const most = largest ?? largestOf(weights.flat());
  const left = rows.length ? widest(rows, 16) * LETTER + SPARE : 0;
  const size = cell ?? Math.max(Math.min((width - left) / Math.max(columns.length, 1), 44), 4);
  const isSlanted = columns.some(each => [...each].length * LETTER > size - 2);
  const top = columns.length ? (isSlanted ? widest(columns, 14) * LETTER * 0.72 + 18 : 20) : 0;
  // A slanted name stands over what is at its right; the last ones, over what is beyond the cells.
  const beyond = columns.map((name, column) => [...cut(name, 14)].length * LETTER * 0.72 + 6 - (columns.length - column - 0.5) * size);
  const total = left + size * columns.length + (isSlanted ? Math.max(40, ...beyond) : 1.5);
  const parts = [];
  columns.forEach((name, column) => {
    const x = left + (column + 0.5) * size;
    const turned = isSlanted ? { transform: `rotate(-45 ${x} ${top - 6})` } : {};
    parts.push(text(x, top - 6, cut(name, 14), "ink small", isSlanted ? "start" : "middle", turned));
  });
  weights.forEach((line, row) => {
    const y = top + row * size;
    parts.push(text(left - SPARE, y + size / 2 + 4, cut(rows[row] ?? "", 16), row === chosen ? "ink small strong" : "ink small", "end"));
    line.forEach((weight, column) => {
      const level = levelOf(weight, most), isNumber = Number.isFinite(weight);
      parts.push(shape("rect", {
        x: left + column * size, y, width: size + 0.3, height: size + 0.3, "data-row": row, "data-column": column,
        fill: isNumber ? `var(--w${level})` : "#8c8c8c",
      }));
      if (numbers && size >= 21 && (weight !== 0 || !isNumber))
        parts.push(text(left + (column + 0.5) * size, y + size / 2 + 4, inCell(weight), "small number", "middle", { fill: `var(--i${level})`, "pointer-events": "none" }));
    });
  });
  parts.push(shape("rect", { x: left, y: top, width: size * columns.length, height: size * weights.length, class: "faint", "pointer-events": "none" }));
  if (chosen !== undefined && chosen !== null && chosen < weights.length)
    parts.push(shape("rect", { x: left, y: top + chosen * size, width: size * columns.length, height: size, class: "chosen", "pointer-events": "none" }));
  const drawn = drawing(Math.max(total, 60), top + size * weights.length + 1.5, label, ...parts);
  const at = event => {
    const { row, column } = event.target.dataset ?? {};
    return row === undefined ? [] : [Number(row), Number(column)];
  };
  if (onchoose) drawn.addEventListener("click", event => { if (at(event).length) onchoose(...at(event)); });
  if (onpoint) {
    drawn.addEventListener("pointermove", event => onpoint(...at(event)));
    drawn.addEventListener("pointerleave", () => onpoint());
  }
  return drawn;
}
