// What can be set in the room of a sentence, how the address says it, and how the server is asked for it.

export const SHOWS = [["head", "One head"], ["layer", "Mean of a layer"], ["all", "Mean of all"], ["rollout", "Rollout"]];
export const PARTS = { encoder: "What is read, to itself", decoder: "What is written, to itself", cross: "What is written, to what is read" };
export const ORDERS = [["place", "Layers down, heads across"], ["entropy", "By entropy, sharpest first"], ["distance", "By distance, nearest first"]];

export function fromAddress(given) {
  const number = each => (/^\d{1,4}$/.test(each ?? "") ? Number(each) : null);
  const one = (each, of) => (of.includes(each) ? each : of[0]);
  return {
    view: one(given.view, ["matrix", "lines"]), show: one(given.show, SHOWS.map(([each]) => each)), layer: number(given.layer), head: number(given.head),
    unit: one(given.unit, ["words", "pieces"]), specials: given.specials === "1", order: one(given.order, ORDERS.map(([each]) => each)),
    part: Object.hasOwn(PARTS, given.part ?? "") ? given.part : null,
  };
}

export const toAddress = ({ view, show, layer, head, unit, specials, order, part }) =>
  ({ view, show, layer, head, unit, specials: specials ? 1 : null, order: order === "place" ? null : order, part });

// About which text and which of its words a question is.
export const aboutText = ({ text, target }, { unit, specials, part }) => ({
  text, pieces: unit === "pieces", specials,
  ...(part ? { part } : {}), ...(target.trim() && part !== "encoder" ? { target } : {}),
});

// About which of the weights.
export const aboutHead = ({ show, layer, head }) =>
  ({ ...(show === "head" || show === "layer" ? { layer } : {}), ...(show === "head" ? { head } : {}), rollout: show === "rollout" });
