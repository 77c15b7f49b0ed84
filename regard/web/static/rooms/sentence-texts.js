// Two texts: what is read above, what is written below, and lines from the words that are written up to those they attend to.
import { drawing, shape, text } from "../elements.js";
import { largestOf, levelOf, percent, placeOf, threeDigits } from "../numbers.js";
import { cut } from "../weights.js";

const HIGH = 34, BELOW = 25, APART = 7, PAD = 8, SKY = 120, HEAD = 20; // of a word with its percents, without, and between
const THICKEST = 9, FAINTEST = 0.012, LETTERS = 18;

let measure = null;
// How wide words are that are strong.
export function widthOf(words) {
  if (measure === null) {
    measure = document.createElement("canvas").getContext("2d");
    measure.font = `650 12px ${getComputedStyle(document.body).fontFamily}`;
  }
  return measure.measureText(words).width;
}

// Words as they stand in lines: { name, x, y, width }, and how high all of it is. A text from right to left begins at the right.
function flow(names, width, high, least) {
  const isBack = /[\u0590-\u08ff\ufb1d-\ufefc]/.test(names.join(""));
  let x = 0, y = 0;
  const placed = names.map(each => {
    const name = cut(each, LETTERS), wide = Math.min(Math.max(widthOf(name) + 2 * PAD, least), width);
    if (x > 0 && x + wide > width) [x, y] = [0, y + high + 6];
    const at = { name, x: isBack ? width - x - wide : x, y, width: wide };
    x += wide + APART;
    return at;
  });
  return { placed, height: y + high };
}

export function texts({ rows, columns, weights, chosen, width, label, onchoose, onpoint }) {
  const largest = largestOf(weights.flat());
  const read = flow(columns, width - 2, HIGH, 40), written = flow(rows, width - 2, BELOW, 24);
  const top = HEAD, bottom = top + read.height + SKY, height = bottom + written.height + HEAD;
  const threads = [], strong = [];
  weights.forEach((line, row) => line.forEach((weight, column) => {
    const share = weight / largest;
    if (!(share > FAINTEST)) return;
    const isChosen = row === chosen, from = written.placed[row], to = read.placed[column];
    const [x0, y0, x1, y1] = [from.x + from.width / 2, bottom + from.y, to.x + to.width / 2, top + to.y + HIGH];
    const middle = (top + read.height + bottom) / 2;
    (isChosen ? strong : threads).push(shape("path", {
      d: `M${x0} ${y0}C${x0} ${middle} ${x1} ${middle} ${x1} ${y1}`, class: isChosen ? "thread is-chosen" : "thread",
      "stroke-width": Math.max(share * THICKEST, 0.6), "stroke-opacity": isChosen ? 0.35 + 0.6 * placeOf(weight, largest) : 0.04 + 0.16 * placeOf(weight, largest),
      "stroke-linecap": "round", "data-row": row, "data-column": column,
    }, shape("title", {}, `${rows[row]} → ${columns[column]}: ${threeDigits(weight)}`)));
  }));
  const above = read.placed.map(({ name, x, y, width: wide }, column) => {
    const weight = weights[chosen]?.[column] ?? 0, fill = `var(--i${levelOf(weight, largest)})`, middle = 1 + x + wide / 2;
    return shape("g", { class: "read" },
      shape("rect", { x: 1 + x, y: top + y, width: wide, height: HIGH, rx: 5, fill: `var(--w${levelOf(weight, largest)})`, stroke: "var(--faint)" }),
      text(middle, top + y + 15, name, weight === largestOf(weights[chosen] ?? []) ? "strong" : "", "middle", { fill }),
      text(middle, top + y + 28, percent(weight), "small number", "middle", { fill }));
  });
  const below = written.placed.map(({ name, x, y, width: wide }, row) =>
    shape("g", { class: row === chosen ? "word is-chosen" : "word", "data-row": row, onclick: () => onchoose(row) },
      shape("rect", { x: 1 + x, y: bottom + y, width: wide, height: BELOW, rx: 5, class: row === chosen ? "plate on-page is-chosen" : "plate on-page", "data-row": row }),
      text(1 + x + wide / 2, bottom + y + 17, name, row === chosen ? "ink strong" : "ink", "middle", { "pointer-events": "none" })));
  const drawn = drawing(width, height, label,
    text(1, 12, "read", "quiet small"), text(1, height - 6, "written", "quiet small"), ...threads, ...strong, ...above, ...below);
  drawn.addEventListener("pointermove", event => {
    const { row, column } = event.target.dataset ?? {};
    if (column === undefined) onpoint();
    else onpoint(Number(row), Number(column));
  });
  drawn.addEventListener("pointerleave", () => onpoint());
  return drawn;
}
