// One key: which column it is, what the query says of it, and how far it hears.
import { button, select, slider } from "../controls.js";
import { element } from "../elements.js";
import { percent, plain } from "../numbers.js";
import { FIELDS, length, meant, rounded, typed, words } from "./table-axes.js";
import { between, errorDrawing } from "./table-errors.js";

const NEARLY = 1.015; // the widths are searched to about a hundredth of the least error
let count = 0;

export class KeyPanel {
  constructor(room, place) {
    this.room = room;
    this.place = place;
    this.column = room.columns[room.keys[place]];
    this.errors = element("figure", { class: "errors" });
    this.note = element("p", { class: "caption error-note" });
    this.root = element("section", { class: "panel key", "aria-label": `Key ${this.column.name}` });
    this.root.append(this.header(), this.queryControl(), this.widthControl(), this.errors, this.note);
  }

  header() {
    const { room, place } = this;
    const chooser = select({
      label: room.keys.length > 1 ? `Key ${place + 1}` : "Key: ask by", name: `key-${place}`, value: room.keys[place],
      options: room.choices(room.keys[place], [...room.keys, room.value]), onchange: each => room.setKey(place, Number(each)),
    });
    const remove = room.keys.length > 1 ? button("×", () => room.removeKey(place), { class: "quiet-button remove", "aria-label": `Do not ask by ${this.column.name}` }) : null;
    return element("div", { class: "key-header" }, chooser.root, remove);
  }

  queryControl() {
    const { room, place, column } = this;
    if (column.role !== "line") {
      this.chooser = select({ label: "Query", name: `query-${place}`, value: room.query[place], options: column.categories, onchange: each => room.ask(place, Number(each)) });
      return this.chooser.root;
    }
    const id = `query-${(count += 1)}`, kind = FIELDS[column.kind] ?? "number";
    this.field = element("input", { id, name: `query-${place}`, type: kind, step: "any", onchange: () => {
      const at = meant(column, this.field.value);
      if (at === null) this.showQuery();
      else room.ask(place, at);
    } });
    this.slide = slider({
      label: `${column.name} of the query`, name: `slide-${place}`, low: column.low, high: column.high, steps: 400, value: room.query[place],
      say: at => words(column, at), onchange: at => room.ask(place, rounded(column, at, 400)),
    });
    this.slide.root.classList.add("only-slider");
    return element("div", { class: "query-control" },
      element("div", { class: "control field" }, element("label", { for: id }, "Query"), this.field), this.slide.root);
  }

  widthControl() {
    const { room, place, column } = this;
    const [low, high] = room.rangeOf(place);
    const isLine = column.role === "line";
    this.wide = slider({
      label: isLine ? "Bandwidth" : "A mismatch weighs", name: `width-${place}`, low, high, log: true, value: room.widthOf(place) || high,
      say: () => this.widthWords(), onchange: width => room.setWidth(place, width),
    });
    return this.wide.root;
  }

  widthWords() {
    const { room, place, column } = this, width = room.widthOf(place);
    if (width === null && room.best.length === 0) return "…";
    const said = width === null || width >= room.rangeOf(place)[1] ? "ignored" : column.role === "line" ? length(column, width) : width < 5e-5 ? "nothing" : percent(width);
    if (room.best.length === 0 && room.isLarge && room.widths[place] === null) return `${said} (a guess)`;
    return room.isBest(place) ? `${said} (${room.hasBest ? "best" : "usual"})` : said;
  }

  showQuery() {
    const at = this.room.query[this.place];
    if (this.chooser) this.chooser.set(at);
    if (this.field && document.activeElement !== this.field) this.field.value = typed(this.column, at);
    else if (this.field && meant(this.column, this.field.value) !== at) this.field.value = typed(this.column, at);
    this.slide?.set(at);
  }

  showWidth() {
    const { room, place } = this, [low, high] = room.rangeOf(place);
    this.wide.set(Math.max(room.widthOf(place) ?? high, low));
    this.showErrors();
  }

  showErrors() {
    const { room, place, column } = this, { known, measure, hidden, baseline } = room.errorsOf(place);
    const range = room.rangeOf(place), width = room.widthOf(place) ?? range[1];
    this.errors.replaceChildren(errorDrawing(known, { range, width, best: room.best[place] ?? null, measure }));
    const found = known.filter(([, error]) => error !== null);
    if (found.length === 0) {
      const isGuess = room.isSearching && room.widths[place] === null, searched = column.role === "line" ? "best bandwidth" : "best weight";
      this.note.replaceChildren(room.isSearching ? `${isGuess ? "A guess; searching" : "Searching"} for the ${searched} …` : room.isReadingErrors ? "Hiding rows, one at a time …" : "");
      return;
    }
    const least = Math.min(...found.map(([, error]) => error)), here = between(found, width);
    const said = error => (measure === "root mean square" ? length(room.columns[room.value], error, 4) : plain(error));
    const by = column.role === "line" ? "this bandwidth" : "this weight", rows = hidden === room.points?.n ? "each row" : `each of ${hidden.toLocaleString("en")} rows`;
    const about = place === 0 ? `Error when ${rows} is hidden and predicted from the others` : "Error of hidden rows";
    const compared = here <= NEARLY * least ? ": the least, or nearly" : `, at best ${said(least)}`;
    const changed = room.hasChanged && room.widths[place] === null ? `In place of the guess, the best ${column.role === "line" ? "bandwidth" : "weight"}. ` : "";
    this.note.replaceChildren(`${changed}${about}: ${said(here)} by ${by}${compared} (${measure}${measure === "Brier score" ? ", 0 is perfect" : ""}).${place === 0 ? this.unknowing(baseline, said) : ""}`);
  }
  // What the error is compared with: that of who predicts by all rows alike.
  unknowing(baseline, said) {
    const { room, column } = this;
    if (baseline === null) return "";
    if (room.errorsOf(0).measure === "Brier score") return ` Always guessing the shares: ${said(baseline)}.`;
    return ` Knowing ${room.keys.length > 1 ? "none of the keys" : `nothing of ${column.name}`}: ${said(baseline)}.`;
  }
}
