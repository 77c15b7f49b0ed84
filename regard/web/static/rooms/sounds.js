import { element } from "../elements.js";

export function mount(root, { about, state, keep }) {
  root.append(element("p", {}, "sounds"));
  return { go() {}, leave() {} };
}
