// The frame: which room is shown, by the fragment of the address; one room is mounted at a time.
import { fragment, read, write } from "./address.js";
import { about, drop, stop } from "./server.js";
import { element } from "./elements.js";
import { say, fail } from "./said.js";

const ROOMS = {
  formula: { title: "The formula", load: () => import("./rooms/formula.js") },
  table: { title: "A table", load: () => import("./rooms/table.js") },
  sentence: { title: "A sentence", load: () => import("./rooms/sentence.js") },
  sounds: { title: "Sounds", load: () => import("./rooms/sounds.js") },
};

const main = document.getElementById("room");
let mounted = null; // { name, room }
let turn = 0;

async function show() {
  const { room: asked, state } = read();
  const name = Object.hasOwn(ROOMS, asked) ? asked : "formula";
  if (mounted?.name === name) {
    mounted.room.go?.(state);
    return;
  }
  const mine = (turn += 1);
  mounted?.room.leave?.();
  mounted = null;
  for (const link of document.querySelectorAll("nav [data-room]")) {
    if (link.dataset.room === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.title = `${ROOMS[name].title} · regard`;
  main.replaceChildren(element("p", { class: "waiting" }, "Opening …"));
  try {
    const known = await about(true); // first: where the server has ended it says so, and a module that is missing does not
    const module = await ROOMS[name].load();
    if (mine !== turn) return;
    const root = element("div", { class: `room room-${name}` });
    main.replaceChildren(root);
    // A room keeps what it shows in the address: `keep` writes it there, and `go` is told where the reader goes back.
    // Its link leads there, too: who looks into another room finds this one as it was left.
    const keep = kept => {
      write(name, kept);
      document.querySelector(`nav [data-room="${name}"]`)?.setAttribute("href", fragment(name, kept));
    };
    const room = module.mount(root, { about: known, state, keep });
    mounted = { name, room: room ?? {} };
  } catch (error) {
    if (mine !== turn) return;
    main.replaceChildren(element("p", { class: "notice" }, error.message));
  }
}

document.querySelector(".skip").addEventListener("click", event => {
  event.preventDefault(); // the fragment is the room's
  main.focus();
});

document.getElementById("stop").addEventListener("click", async event => {
  if (event.target.dataset.sure !== "yes") {
    event.target.dataset.sure = "yes";
    event.target.textContent = "Stop now?";
    setTimeout(() => {
      delete event.target.dataset.sure;
      event.target.textContent = "Stop";
    }, 4000);
    return;
  }
  try {
    await stop();
    mounted?.room.leave?.();
    mounted = null;
    turn += 1;
    document.querySelector("nav").remove();
    event.target.remove();
    main.replaceChildren(element("p", { class: "notice" }, "The server has ended. Start it again with regard explore."));
    say("The server has ended.");
  } catch (error) {
    fail(error);
  }
});

// A table may be dropped in any room; without this, browsers would leave the page for the file.
const holdsFile = event => [...(event.dataTransfer?.types ?? [])].includes("Files");
document.addEventListener("dragover", event => { if (holdsFile(event)) event.preventDefault(); });
document.addEventListener("drop", async event => {
  if (!holdsFile(event)) return;
  event.preventDefault();
  if (mounted?.name === "table") return; // which takes it itself
  try {
    const [file] = event.dataTransfer.files;
    location.hash = fragment("table", { table: (await drop(file)).table });
  } catch (error) {
    fail(error);
  }
});

addEventListener("hashchange", show);
show();
