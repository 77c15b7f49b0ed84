// The rows behind an answer, heaviest first, with a bar for each weight.
import { element, shape } from "../elements.js";
import { largestOf } from "../numbers.js";

// `counted`: rows are called by their numbers, which Python counts from 0.
export function rowsTable({ report, weights }, counted) {
  const most = largestOf(weights.map(Math.abs)), last = report.header.length - 1;
  const kind = place => `${report.numeric[place] ? "number" : "words"}${place === last ? " weight" : ""}`;
  const bar = weight => shape("svg", { "aria-hidden": "true" }, shape("rect", { y: 1, width: `${((100 * Math.abs(weight)) / most).toFixed(2)}%`, height: 10, rx: 1.5, class: "bar" }));
  return element("table", { class: "rows" },
    element("caption", { class: "unseen" }, "The rows behind the answer, heaviest first"),
    element("thead", {}, element("tr", {}, report.header.map((name, place) => element("th", { scope: "col", class: kind(place), title: name.length > 16 ? name : null }, element("span", {}, counted && place === 0 ? `${name}, from 0` : name))), element("td", { class: "bar-cell" }))),
    element("tbody", {}, report.lines.map((line, row) =>
      element("tr", {}, line.map((cell, place) => element("td", { class: kind(place), title: cell.length > 24 ? cell : null }, cell)), element("td", { class: "bar-cell" }, bar(weights[row]))))));
}
