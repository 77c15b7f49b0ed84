// Numbers as every picture of regard has them (docs/visual.md), and where a weight lies on the scale of colours.
import { COLOURS, LEVELS, POWER } from "./scale.js";

export const threeDigits = weight => (Number.isFinite(weight) ? `${Number((100 * weight).toPrecision(3))}%` : "no number");

export function percent(weight) {
  if (!Number.isFinite(weight)) return "?";
  if (weight !== 0 && Math.abs(weight) < 5e-5) return weight > 0 ? "<0.01%" : ">−0.01%";
  return `${signed((100 * weight).toFixed(weight === 0 || Math.abs(weight) >= 5e-3 ? 1 : 2))}%`;
}

export const inCell = weight =>
  !Number.isFinite(weight) ? "?" : Math.abs(weight) < 0.005 ? "·" : signed(Math.round(100 * weight));

export const signed = number => String(number).replace("-", "−");

// A number for people: three digits or so, thousands apart.
export function plain(number, digits = 3) {
  if (!Number.isFinite(number)) return "?";
  const size = Math.abs(number);
  if (size !== 0 && (size < 1e-3 || size >= 1e15)) return signed(number.toPrecision(digits));
  const most = size >= 1000 ? 0 : Math.max(digits - 1 - Math.floor(Math.log10(size || 1)), 0);
  return signed(number.toLocaleString("en", { maximumFractionDigits: Math.min(most, 6) }));
}

export const largestOf = weights => {
  let largest = 0;
  for (const weight of weights) if (weight > largest && weight < Infinity) largest = weight;
  return largest || 1;
};
export const placeOf = (weight, largest) => Math.min(Math.max(weight / largest, 0), 1) ** POWER;
export const levelOf = (weight, largest) => Math.round(placeOf(weight, largest) * LEVELS);

// Five entries of a legend, as [place, weight].
export const legend = largest => [0, 0.25, 0.5, 0.75, 1].map(place => [place, place ** (1 / POWER) * largest]);

const dark = matchMedia("screen and (prefers-color-scheme: dark)"); // paper is light
let isPaper = false;
export const isDark = () => dark.matches && !isPaper;
export const onTheme = redraw => {
  dark.addEventListener("change", redraw);
  return () => dark.removeEventListener("change", redraw);
};
// What is painted is painted anew at once, before the page is printed and after.
export const onPaper = repaint => {
  const [before, after] = [true, false].map(is => () => repaint((isPaper = is)));
  addEventListener("beforeprint", before);
  addEventListener("afterprint", after);
  return () => {
    removeEventListener("beforeprint", before);
    removeEventListener("afterprint", after);
  };
};
// For what is painted pixel by pixel; everything else has the variables --w0 … --w32, and --i0 … --i32 on them.
export const colours = () => COLOURS[isDark() ? "dark" : "light"];
export { LEVELS };
