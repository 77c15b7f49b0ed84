// The rows behind an answer, heaviest first, with a bar for each weight.
import { drawing, element, shape } from "../elements.js";
import { largestOf } from "../numbers.js";

const BAR = 96;

export function rowsTable({ report, weights }) {
  const most = largestOf(weights.map(Math.abs));
  const kind = place => (report.numeric[place] ? "number" : "words");
  const bar = weight => drawing(BAR, 12, "", shape("rect", { x: 0, y: 1, width: (BAR * Math.abs(weight)) / most, height: 10, rx: 1.5, class: "bar" }));
  return element("table", { class: "rows" },
    element("caption", { class: "unseen" }, "The rows behind the answer, heaviest first"),
    element("thead", {}, element("tr", {}, report.header.map((name, place) => element("th", { scope: "col", class: kind(place) }, name)), element("td", {}))),
    element("tbody", {}, report.lines.map((line, row) => {
      const drawn = bar(weights[row]);
      drawn.removeAttribute("role");
      drawn.removeAttribute("aria-label");
      drawn.setAttribute("aria-hidden", "true");
      return element("tr", {}, line.map((cell, place) => element("td", { class: kind(place) }, cell)), element("td", { class: "bar-cell" }, drawn));
    })));
}
