// The error of leave-one-out under a bandwidth's slider, drawn over the same line as the slider.
import { axis, drawing, shape } from "../elements.js";
import { plain } from "../numbers.js";

const WIDTH = 312, HEIGHT = 64, EDGE = 8;
export const TRIED = 25; // widths

// The best is among them: between two others the least error would be lost.
export function widthsOf([low, high], best) {
  const tried = Array.from({ length: TRIED }, (_, place) => low * (high / low) ** (place / (TRIED - 1)));
  return best > low && best < high ? [...tried.filter(each => each !== best), best].sort((one, other) => one - other) : tried;
}

// The coarse before the fine: every eighth, then those between.
export function coarseFirst(count) {
  const found = new Set();
  for (let step = 2 ** Math.floor(Math.log2(Math.max(count - 1, 1))); step >= 1; step /= 2)
    for (let place = 0; place < count; place += step) found.add(place);
  found.add(count - 1);
  return [...found];
}

// `known` are [width, error] in the order of widths.
export function errorDrawing(known, { range: [low, high], width, best, measure }) {
  const found = known.filter(([, error]) => error !== null);
  const across = axis(Math.log(low), Math.log(high), EDGE, WIDTH - EDGE);
  const [least, most] = found.length ? [Math.min(...found.map(([, error]) => error)), Math.max(...found.map(([, error]) => error))] : [0, 1];
  const up = axis(least, most === least ? least + 1 : most, HEIGHT - 8, 6);
  const at = each => across(Math.log(Math.min(Math.max(each, low), high)));
  const d = found.map(([each, error], place) => `${place ? "L" : "M"}${at(each).toFixed(1)} ${up(error).toFixed(1)}`).join("");
  const here = between(found, width);
  const label = found.length > 1
    ? `Error of leave-one-out by width: least ${plain(least)}, most ${plain(most)} (${measure}); here ${here === null ? "unknown" : plain(here)}`
    : "Error of leave-one-out by width: not known yet";
  return drawing(WIDTH, HEIGHT, label,
    shape("path", { d: `M${EDGE} ${HEIGHT - 2}H${WIDTH - EDGE}`, class: "faint" }),
    best === null ? null : shape("path", { d: `M${at(best).toFixed(1)} 4V${HEIGHT - 2}`, class: "best-line" }),
    d ? shape("path", { d, class: "curve" }) : null,
    here === null ? null : shape("circle", { cx: at(width), cy: up(here), r: 4.5, class: "mark-dot" }));
}

// Between two widths that were tried, on the line between their errors.
export function between(found, width) {
  if (found.length < 2 || width === null) return null;
  const after = found.findIndex(([each]) => each >= width);
  if (after <= 0) return after === 0 ? found[0][1] : found.at(-1)[1];
  const [[w0, e0], [w1, e1]] = [found[after - 1], found[after]];
  const share = Math.log(width / w0) / Math.log(w1 / w0);
  return e0 + share * (e1 - e0);
}
