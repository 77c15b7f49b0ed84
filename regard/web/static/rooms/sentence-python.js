// The lines of Python that compute what is drawn.
import { literal } from "../saving.js";

const MOST = 1 << 20; // weights of a part that are read one by one

// `part` is what is visible of the map of a long text: { rows, columns }.
export function python({ about, known, settings, part }) {
  const { text, target } = known.body, { layer, head, show } = settings, cut = settings.unit === "pieces";
  const imports = [], lines = [];
  if (about.model) {
    imports.push("from regard.integrations.transformers import TextModel");
    const given = [literal(text), known.parts.length > 1 ? literal(known.part) : null, target ? `target=${literal(target)}` : null];
    lines.push(`model = TextModel.load(${literal(about.model)})  # the folder of --model`, `look = model.look(${given.filter(each => each).join(", ")})`);
  } else {
    imports.push("from regard.text import SentenceEncoder");
    lines.push(`look = SentenceEncoder.load().look(${literal(text)})`);
  }
  if (known.is_long) {
    lines.push(`view = look.views[${layer}]  # (1, heads, queries, keys), computed where it is read`);
    const spans = part ? [part.rows, part.columns] : [], pairs = spans.reduce((found, [from, to]) => found * (to - from), 1);
    if (part && pairs <= MOST)
      lines.push(`weights = view.tile(${spans.map(([from, to]) => `slice(${from}, ${to})`).join(", ")})[0, ${head}]  # what is visible; nothing is hidden, scaled or pooled`);
    else lines.push(`weights = view.map(512, 512, pool="mean")[0, ${head}]  # all of it, pooled; nothing is hidden or scaled`);
  } else {
    imports.push("from regard.text.seen import choose_maps");
    if (cut) lines.push("look = look.by_pieces()");
    const specials = settings.specials ? "specials=True" : null;
    if (show === "rollout") {
      imports.unshift("from regard.analysis import rollout");
      imports.push("from regard.text import by_words");
      lines.push(
        `shown = choose_maps(${["look", specials].filter(each => each).join(", ")}).rows  # which words`,
        "weights = rollout(look.views, range(len(look.pieces)))[0]  # among pieces",
        "weights = by_words(weights, look.pieces.word_of)[shown][:, shown]", "weights /= weights.sum(-1, keepdim=True)  # rows are queries, columns are keys",
      );
    } else {
      const named = [show === "all" ? null : `layer=${layer}`, show === "head" ? `head=${head}` : null, specials].filter(each => each);
      lines.push(`seen = choose_maps(${["look", ...named].join(", ")})`, "print(seen.notes)", "weights = seen.weights  # rows are queries, columns are keys");
    }
  }
  return [...imports, "", ...lines, "print(weights)", ""].join("\n");
}
