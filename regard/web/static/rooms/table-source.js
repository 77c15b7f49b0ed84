// Where a table comes from: the command line, a file that is dropped or chosen, or the example.
import { button, select } from "../controls.js";
import { element } from "../elements.js";
import { drop } from "../server.js";
import { EXAMPLE } from "./table-state.js";

const KINDS = [".csv", ".tsv", ".parquet", ".feather", ".arrow", ".csv.gz", ".tsv.gz"]; // as the server says them, too

export function source(room, about) {
  const tables = [...about.tables, EXAMPLE];
  const picked = select({ label: "Table", name: "table", options: [], value: null, onchange: each => room.open(each) });
  const input = element("input", { type: "file", class: "unseen", accept: [...KINDS, ".gz"].join(","), tabindex: "-1", "aria-hidden": "true", "aria-label": "A file with a table" });
  const choose = button("Open a file …", () => input.click());
  const hint = element("p", { class: "caption drop-hint" }, `or drop one on the page: ${KINDS.join(", ")}`);
  const fill = () => picked.fill(tables.map(({ table, name }) => [table, table === EXAMPLE.table ? `${name} (an example)` : name]), picked.value || null);

  async function take(file) {
    if (!file) return;
    const { file: most } = about.limits, wish = room.waits(`Reading ${file.name} …`);
    if (file.size > most) {
      room.refuse(`${file.name} has ${file.size.toLocaleString("en")} bytes; a table that is dropped may have ${most.toLocaleString("en")}. Start regard explore with its path.`);
      return;
    }
    try {
      const kept = await drop(file);
      tables.splice(tables.length - 1, 0, kept);
      fill();
      if (wish === room.wish) await room.open(kept.table); // else the reader has chosen another since
    } catch (error) {
      if (wish === room.wish) room.refuse(error.message);
    }
  }

  input.addEventListener("change", async () => {
    const [file] = input.files;
    await take(file);
    input.value = "";
  });
  const target = room.root;
  let depth = 0; // a drag enters and leaves every element on its way
  const over = by => {
    depth = Math.max(depth + by, 0);
    target.classList.toggle("is-over", depth > 0);
  };
  const holds = event => [...(event.dataTransfer?.types ?? [])].includes("Files");
  const listeners = {
    dragenter: event => { if (holds(event)) over(1); },
    dragleave: event => { if (holds(event)) over(-1); },
    dragover: event => { if (holds(event)) event.preventDefault(); },
    drop: event => {
      if (!holds(event)) return;
      event.preventDefault();
      over(-depth);
      take(event.dataTransfer.files[0]);
    },
  };
  for (const [name, listener] of Object.entries(listeners)) document.addEventListener(name, listener);

  fill();
  return {
    root: element("div", { class: "source" }, picked.root, element("div", { class: "opening" }, choose, input, hint)),
    nameOf: table => tables.find(each => each.table === table)?.name ?? "table.csv",
    first: () => tables[0].table,
    set: picked.set,
    leave() {
      for (const [name, listener] of Object.entries(listeners)) document.removeEventListener(name, listener);
    },
  };
}
