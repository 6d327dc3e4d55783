// Objects of another scene: drag one onto an object of the picture, or press it to give its looks
// to the selected one.

import { Frame } from "./frames.js";
import { sendFile } from "./uploading.js";

const element = (id) => document.getElementById(id);
const THUMB = 56;
const FILE = "file";
const FAR = 6; // pixels that a press may wander before it is a drag

export class Tray {
  #server;
  #drop;
  #hover;
  #ghost = null;
  #press = null;
  state = null;

  // drop(slot of the tray, event or null) gives an object away; hover(event or null) while dragging.
  constructor({ server, samples, drop, hover, backdrop }) {
    this.#server = server;
    this.#drop = drop;
    this.#hover = hover;
    const giver = element("giver");
    giver.append(new Option("choose …", ""));
    for (const { id, title } of samples) giver.append(new Option(title, id));
    giver.append(new Option("a file …", FILE));
    giver.addEventListener("change", () => this.#choose(giver.value));
    const file = element("giver-file");
    file.addEventListener("change", () => {
      if (file.files[0]) this.#load(sendFile(server, file.files[0], element("giver-upload")));
      file.value = "";
    });
    element("backdrop").addEventListener("click", backdrop);
    window.addEventListener("pointermove", (event) => this.#moved(event));
    window.addEventListener("pointerup", (event) => this.#released(event));
    window.addEventListener("pointercancel", () => this.#end());
  }

  #choose(value) {
    if (value === FILE) element("giver-file").click();
    else if (value) this.#load(this.#server.openSample(value));
  }

  async #load(answer) {
    const problem = element("tray-problem");
    problem.hidden = true;
    try {
      this.state = await answer;
      const frame = await Frame.from(this.state.frame, this.state.size);
      this.#draw(frame);
    } catch (error) {
      problem.textContent = error.message;
      problem.hidden = false;
    }
  }

  #draw(frame) {
    const objects = frame.objects();
    element("tray").replaceChildren(...objects.map(({ index }) => this.#thumbnail(frame, index)));
    element("tray-hint").textContent = objects.length
      ? "Drag one onto an object of the picture, or select an object and press one here."
      : "The model found no object in this scene.";
    element("backdrop").hidden = false;
  }

  #thumbnail(frame, slot) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.giver = slot;
    button.setAttribute("aria-label", `Give the looks of object ${slot} to the selected object`);
    button.append(frame.thumbnail(slot, THUMB));
    button.addEventListener("pointerdown", (event) => {
      if (event.button !== 0) return;
      this.#press = { slot, x: event.clientX, y: event.clientY, frame };
    });
    button.addEventListener("click", (event) => {
      if (event.detail === 0 || !this.#wasDrag) this.#drop(slot, null);
      this.#wasDrag = false;
    });
    return button;
  }

  #wasDrag = false;

  #moved(event) {
    if (!this.#press) return;
    const { x, y, slot, frame } = this.#press;
    if (!this.#ghost && Math.hypot(event.clientX - x, event.clientY - y) > FAR) {
      this.#ghost = frame.thumbnail(slot, THUMB);
      this.#ghost.className = "ghost";
      document.body.append(this.#ghost);
    }
    if (!this.#ghost) return;
    this.#ghost.style.left = `${event.clientX}px`;
    this.#ghost.style.top = `${event.clientY}px`;
    this.#hover(event);
  }

  #released(event) {
    const press = this.#press;
    const dragged = Boolean(this.#ghost);
    this.#end();
    if (!press || !dragged) return;
    this.#wasDrag = true;
    setTimeout(() => (this.#wasDrag = false));
    this.#drop(press.slot, event);
  }

  #end() {
    this.#press = null;
    this.#ghost?.remove();
    this.#ghost = null;
    this.#hover(null);
  }
}
