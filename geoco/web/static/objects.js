// The list of slots, and exact numbers for the selected one.

import { color } from "./frames.js";

const element = (id) => document.getElementById(id);
const THUMB = 40;

export class Objects {
  #list = element("objects");
  #select;

  constructor(select) {
    this.#select = select;
  }

  draw(frame, selected) {
    const focused = document.activeElement?.dataset?.slot;
    this.#list.replaceChildren(...frame.slots.map((slot) => this.#button(frame, slot, selected)));
    if (focused !== undefined) this.#list.querySelector(`[data-slot="${focused}"]`)?.focus();
    const count = frame.objects().length;
    const found = element("found");
    found.hidden = count > 0;
    found.textContent = "The model found no object here, only background.";
  }

  #button(frame, slot, selected) {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.slot = slot.index;
    button.style.setProperty("--slot", color(slot.index));
    button.setAttribute("aria-pressed", String(slot.index === selected));
    button.disabled = !slot.is_present;
    const what = describeSlot(frame, slot);
    button.setAttribute("aria-label", `Slot ${slot.index}: ${what}`);
    button.title = `Slot ${slot.index}: ${what}`;
    if (slot.area > 0) button.append(frame.thumbnail(slot.index, THUMB));
    const name = document.createElement("span");
    name.textContent = slot.index;
    button.append(name);
    if (!frame.isObject(slot.index)) button.classList.add("faint");
    button.addEventListener("click", () => this.#select(slot.index));
    return button;
  }
}

export function describeSlot(frame, slot) {
  if (!slot.is_present) return "removed";
  if (slot.is_background) return "the background, not made to be moved";
  if (!frame.isObject(slot.index)) return "empty, an edit may show nothing";
  return `an object of ${slot.area} pixels`;
}

const FIELDS = ["x", "y", "scale"];

// Place in pixels and scale on the grid, each as a slider and as a number.
export class Numbers {
  #view = null;
  #isVideo = false;
  #size;
  #preview;
  #commit;

  // preview(edit) while a slider moves, commit(edit) when it stops.
  constructor({ model, preview, commit }) {
    this.#size = model.size;
    this.#preview = preview;
    this.#commit = commit;
    const most = Math.min(model.largest_scale, Math.max(0.6, 2 * model.trained_scales[1]));
    const limits = { x: [0, model.size - 1], y: [0, model.size - 1], scale: [0.02, most] };
    for (const name of FIELDS) {
      const [slider, number] = [element(`${name}-slider`), element(name)];
      [slider.min, slider.max] = limits[name];
      slider.addEventListener("input", () => this.#readInput(name, slider, this.#preview));
      slider.addEventListener("change", () => this.#readInput(name, slider, this.#commit));
      number.addEventListener("change", () => this.#readInput(name, number, this.#commit));
    }
  }

  draw(frame, selected, isVideo) {
    this.#isVideo = isVideo;
    const view = selected === null ? null : frame.slots[selected];
    this.#view = view?.is_present ? view : null;
    element("numbers").hidden = !this.#view;
    element("nobody").hidden = Boolean(this.#view);
    if (!this.#view) return;
    element("numbers").style.setProperty("--slot", color(selected));
    for (const name of FIELDS) this.#write(name, this.#value(name));
    element("facts").textContent = `Slot ${selected}: ${describeSlot(frame, view)}.`;
  }

  #value(name) {
    return name === "scale" ? this.#view.scale : ((this.#view[name] + 1) / 2) * (this.#size - 1);
  }

  #write(name, value) {
    element(`${name}-slider`).value = value;
    element(name).value = value.toFixed(name === "scale" ? 3 : 1);
  }

  #readInput(name, input, tell) {
    const value = Number(input.value);
    if (!this.#view || input.value === "" || !Number.isFinite(value)) return;
    if (input.type === "range") element(name).value = value.toFixed(name === "scale" ? 3 : 1);
    if (name === "scale" && value <= 0) return;
    tell(this.#isVideo ? this.#relative(name, value) : this.#absolute(name, value));
  }

  #absolute(name, value) {
    const { index: slot, x, y } = this.#view;
    if (name === "scale") return { op: "resize_to", slot, scale: value };
    return { op: "move_to", slot, x, y, [name]: (2 * value) / (this.#size - 1) - 1 };
  }

  // What is exact in this frame of a video, and goes along with the others.
  #relative(name, value) {
    const { index: slot, scale } = this.#view;
    if (name === "scale") return { op: "resize", slot, factor: value / scale };
    const change = value - this.#value(name);
    return { op: "move", slot, dx: name === "x" ? change : 0, dy: name === "y" ? change : 0 };
  }
}
