// Lines between words: who attends at the left, what is attended to at the right; the thicker, the more weight.
import { drawing, shape, text } from "../elements.js";
import { largestOf, levelOf, percent, placeOf, threeDigits } from "../numbers.js";
import { cut } from "../weights.js";
import { widthOf } from "./sentence-texts.js";

const LETTERS = 14, LEAST = 38, STEP = 27, THICKEST = 9, FAINTEST = 0.012;
const CALM = 4; // lines of full thickness from one word; where there are more, all are fainter

export function lines({ rows, columns, weights, chosen, width, label, onchoose, onpoint }) {
  const largest = largestOf(weights.flat());
  const wide = names => Math.max(LEAST, ...names.map(each => widthOf(cut(each, LETTERS)))) + 18;
  const left = wide(rows), right = wide(columns) + 46, from = left + 4, to = width - right - 4;
  const height = Math.max(rows.length, columns.length) * STEP + 24;
  const place = (count, at) => 24 + (height - 24 - count * STEP) / 2 + (at + 0.5) * STEP;
  const middle = (from + to) / 2;
  const threads = [], strong = [];
  const crowd = weights.flat().reduce((sum, weight) => sum + Math.max(weight / largest, 0) || 0, 0) / Math.max(rows.length, 1);
  const calm = Math.min(CALM / crowd, 1);
  weights.forEach((line, row) => line.forEach((weight, column) => {
    const share = weight / largest;
    if (!(share > FAINTEST)) return;
    const [y0, y1] = [place(rows.length, row), place(columns.length, column)];
    const isChosen = row === chosen;
    (isChosen ? strong : threads).push(shape("path", {
      d: `M${from} ${y0}C${middle} ${y0} ${middle} ${y1} ${to} ${y1}`, class: isChosen ? "thread is-chosen" : "thread",
      "stroke-width": Math.max(share * THICKEST, 0.6), "stroke-opacity": isChosen ? 0.35 + 0.6 * placeOf(weight, largest) : calm * (0.07 + 0.3 * placeOf(weight, largest)),
      "stroke-linecap": "round", "data-row": row, "data-column": column,
    }, shape("title", {}, `${rows[row]} → ${columns[column]}: ${threeDigits(weight)}`)));
  }));
  const words = [];
  rows.forEach((name, row) => {
    const y = place(rows.length, row);
    words.push(shape("g", { class: row === chosen ? "word is-chosen" : "word", "data-row": row, onclick: () => onchoose(row) },
      shape("rect", { x: 0.5, y: y - STEP / 2 + 2, width: left - 1, height: STEP - 4, rx: 5, class: row === chosen ? "plate is-chosen" : "plate", "data-row": row }),
      text(left - 9, y + 4.5, cut(name, LETTERS), row === chosen ? "ink strong" : "ink", "end", { "pointer-events": "none" })));
  });
  columns.forEach((name, column) => {
    const y = place(columns.length, column), weight = weights[chosen]?.[column] ?? 0, level = levelOf(weight, largest);
    words.push(
      shape("rect", { x: to + 4, y: y - STEP / 2 + 2, width: right - 46, height: STEP - 4, rx: 5, fill: `var(--w${level})` }),
      text(to + 13, y + 4.5, cut(name, LETTERS), weight === largestOf(weights[chosen] ?? []) ? "strong" : "", "start", { fill: `var(--i${level})` }),
      text(width, y + 4.5, percent(weight), "quiet small number", "end"));
  });
  const drawn = drawing(width, height + 2, label,
    text(left - 9, 13, "queries", "quiet small", "end"), text(to + 13, 13, "keys", "quiet small"),
    ...threads, ...strong, ...words);
  drawn.addEventListener("pointermove", event => {
    const { row, column } = event.target.dataset ?? {};
    if (column === undefined) onpoint();
    else onpoint(Number(row), Number(column));
  });
  drawn.addEventListener("pointerleave", () => onpoint());
  return drawn;
}
