// The page: what is open, what is selected, and which part tells which.

import { Server } from "./api.js";
import { Exports } from "./exports.js";
import { Frame } from "./frames.js";
import { toEdit, Gestures } from "./gestures.js";
import { History } from "./history.js";
import { listenToKeys } from "./keyboard.js";
import { Latest } from "./latest.js";
import { Numbers, Objects } from "./objects.js";
import { Stage } from "./stage.js";
import { Timeline } from "./timeline.js";
import { Tray } from "./tray.js";

const element = (id) => document.getElementById(id);

class Page {
  constructor(server, samples) {
    this.server = server;
    this.history = new History(server, (what) => this.changed(what));
    this.gestures = new Gestures({
      begin: () => this.say([]),
      change: (gesture) => this.follow(toEdit(gesture)),
      finish: (gesture, edit) => this.finish(edit, gesture),
    });
    this.previews = new Latest(
      (edit) => this.preview(edit),
      (answer) => this.show(answer),
      (problem) => this.fail(problem),
    );
    this.stage = new Stage({
      picture: element("picture"),
      overlay: element("overlay"),
      gestures: this.gestures,
      select: (slot) => this.select(slot),
    });
    this.objects = new Objects((slot) => this.select(slot));
    this.numbers = new Numbers({
      model: server.model,
      preview: (edit) => this.previews.push(edit),
      commit: (edit) => this.finish(edit),
    });
    this.timeline = new Timeline(this.history, (frame) => this.scrub(frame));
    this.exports = new Exports(server, this.history);
    this.tray = new Tray({
      server,
      samples,
      drop: (slot, event) => this.transplant(slot, event),
      hover: (event) => this.hover(event),
      backdrop: () => this.commit({ op: "set_background", donor: this.tray.state.id }),
    });
    this.listSamples(samples);
    this.wire();
    listenToKeys(this);
  }

  get selected() {
    return this.stage.selected;
  }

  // -- opening ----------------------------------------------------------------------------------

  listSamples(samples) {
    const buttons = samples.map(({ id, title, frames }) => {
      const button = document.createElement("button");
      button.type = "button";
      button.dataset.sample = id;
      button.setAttribute("aria-label", frames > 1 ? `${title}, ${frames} frames` : title);
      button.title = title;
      const picture = document.createElement("img");
      picture.src = this.server.samplePicture(id);
      picture.alt = "";
      button.append(picture);
      if (frames > 1) button.classList.add("video");
      button.addEventListener("click", () => this.openSample(id));
      return button;
    });
    element("samples").replaceChildren(...buttons);
  }

  openSample(id, seed) {
    return this.open((again) => this.server.openSample(id, again), id, seed);
  }

  openFile(file) {
    return this.open((again) => this.server.openFile(file, again), file.name);
  }

  // `load(seed)` asks the server; the same scene can be opened again from other places.
  async open(load, name, seed) {
    this.gestures.cancel();
    await this.busy(() => this.history.begin(() => load(seed), { load, name, seed }));
  }

  async lookAgain() {
    const { load, name, seed } = this.history.origin ?? {};
    if (load) await this.open(load, name, (seed ?? 42) + 1);
  }

  // -- editing ----------------------------------------------------------------------------------

  select(slot) {
    this.stage.selected = slot;
    this.draw();
  }

  // The outline follows at once, the picture as fast as it comes.
  follow(edit) {
    this.stage.draw();
    if (edit) this.previews.push(edit);
  }

  async preview(edit) {
    await this.history.settled();
    const { state, frame } = this.history;
    const answer = await this.server.preview(state.id, edit, frame);
    return { ...answer, frame: await Frame.from(answer.frame, state.size) };
  }

  show({ frame, warnings }) {
    this.stage.shown = frame;
    this.say(warnings);
    this.stage.draw();
  }

  finish(edit, gesture = null) {
    this.previews.cancel();
    if (edit) {
      this.stage.settling = gesture;
      return this.commit(edit);
    }
    this.stage.shown = null;
    this.stage.draw();
    return null;
  }

  commit(edit) {
    return this.busy(() => this.history.commit(edit));
  }

  // Buttons and keys end the gesture under way before they do theirs.
  act(edit) {
    this.gestures.end();
    if (this.selected !== null) this.commit(edit(this.selected));
  }

  remove() {
    this.act((slot) => ({ op: "remove", slot }));
  }

  duplicate() {
    const shift = Math.round(this.server.model.size / 8);
    this.act((slot) => ({ op: "duplicate", slot, dx: shift, dy: 0 }));
  }

  go(step) {
    this.gestures.end();
    return this.busy(() => this.history.go(step));
  }

  hover(event) {
    const target = event ? this.stage.objectAt(event) : null;
    if (target === this.stage.target) return;
    this.stage.target = target;
    this.stage.draw();
  }

  transplant(given, event) {
    const slot = event ? this.stage.objectAt(event) : this.selected;
    if (slot === null) {
      if (!event) this.fail({ message: "Select an object of the picture first: it takes the looks." });
      return;
    }
    this.stage.selected = slot;
    this.commit({ op: "transplant", slot, donor: this.tray.state.id, donor_slot: given });
  }

  scrub(frame) {
    this.gestures.end();
    return this.busy(() => this.history.show(frame));
  }

  // -- telling ----------------------------------------------------------------------------------

  // Work whose problems are shown; the picture then shows the last good state.
  async busy(work) {
    const stage = element("stage");
    this.waiting = (this.waiting ?? 0) + 1;
    stage.dataset.busy = "true";
    element("problem").hidden = true;
    try {
      await work();
    } catch (problem) {
      this.fail(problem);
    }
    this.waiting -= 1;
    if (!this.waiting) stage.dataset.busy = "false";
  }

  fail(problem) {
    element("problem").textContent = problem.message;
    element("problem").hidden = false;
    this.stage.shown = this.stage.settling = null;
    this.stage.draw();
  }

  say(warnings) {
    const place = element("warnings");
    const text = warnings.map((warning) => `${warning[0].toUpperCase()}${warning.slice(1)}.`).join(" ");
    if (place.textContent !== text) place.textContent = text;
    place.hidden = !text;
  }

  async changed(what) {
    const { state, view } = this.history;
    if (!view) return;
    this.stage.frame = view;
    this.stage.shown = this.stage.settling = null;
    element("stage").dataset.state = state.id;
    if (what === "opened") {
      this.stage.selected = null;
      this.timeline.opened();
      this.mark();
    }
    this.say(what === "opened" ? state.notes : state.warnings);
    if (!view.slots[this.selected]?.is_present) this.stage.selected = null;
    await this.compare();
    this.draw();
  }

  draw() {
    const { view, at, entries } = this.history;
    if (!view) return;
    this.stage.draw();
    this.objects.draw(view, this.selected);
    this.numbers.draw(view, this.selected, this.history.isVideo);
    this.timeline.draw();
    this.exports.draw();
    element("undo").disabled = at <= 0;
    element("redo").disabled = at >= entries.length - 1;
    element("remove").disabled = element("duplicate").disabled = this.selected === null;
    this.drawSwap(view);
  }

  drawSwap(view) {
    const swap = element("swap");
    const others = view.objects().filter(({ index }) => index !== this.selected);
    swap.replaceChildren(new Option("…", ""), ...others.map(({ index }) => new Option(index, index)));
    swap.disabled = this.selected === null || others.length === 0;
  }

  // Which sample is open.
  mark() {
    const { name } = this.history.origin;
    for (const button of element("samples").children) {
      button.setAttribute("aria-pressed", String(button.dataset.sample === name));
    }
  }

  // -- before and after -------------------------------------------------------------------------

  async compare() {
    const on = element("compare").getAttribute("aria-pressed") === "true";
    element("comparison").hidden = !on;
    const before = on ? await this.before().catch((problem) => this.fail(problem)) : null;
    this.stage.before = before ?? null;
    this.stage.split = Number(element("split").value) / 100;
    this.stage.draw();
  }

  async before() {
    const { entries, frame } = this.history;
    const first = entries[0].state.id;
    const file = element("before").value === "original" ? "original.png" : "picture.png";
    const answer = await this.server.exported(first, file, { frame });
    return createImageBitmap(await answer.blob());
  }

  // -- buttons ----------------------------------------------------------------------------------

  wire() {
    const click = (id, act) => element(id).addEventListener("click", act);
    click("undo", () => this.go(-1));
    click("redo", () => this.go(1));
    click("remove", () => this.remove());
    click("duplicate", () => this.duplicate());
    click("again", () => this.lookAgain());
    click("open", () => element("file").click());
    for (const id of ["outlines", "compare"]) {
      click(id, ({ currentTarget }) => {
        const on = currentTarget.getAttribute("aria-pressed") !== "true";
        currentTarget.setAttribute("aria-pressed", String(on));
        if (id === "outlines") this.stage.showOutlines = on;
        this.compare();
      });
    }
    element("split").addEventListener("input", () => {
      this.stage.split = Number(element("split").value) / 100;
      this.stage.draw();
    });
    element("before").addEventListener("change", () => this.compare());
    element("swap").addEventListener("change", ({ target }) => {
      if (target.value) this.act((slot) => ({ op: "swap", slot, other: Number(target.value) }));
    });
    element("file").addEventListener("change", ({ target }) => {
      if (target.files[0]) this.openFile(target.files[0]);
      target.value = "";
    });
    this.wireDrop();
  }

  wireDrop() {
    const hasFile = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
    document.addEventListener("dragover", (event) => {
      if (!hasFile(event)) return;
      event.preventDefault();
      document.body.classList.add("dropping");
    });
    document.addEventListener("dragleave", (event) => {
      if (!event.relatedTarget) document.body.classList.remove("dropping");
    });
    document.addEventListener("drop", (event) => {
      document.body.classList.remove("dropping");
      if (!hasFile(event)) return;
      event.preventDefault();
      this.openFile(event.dataTransfer.files[0]);
    });
  }
}

// A model may be a file or a folder: its last name will do.
const short = (name) => name.replace(/\/weights\.safetensors$/, "").split("/").at(-1);

async function start() {
  const server = await Server.begin();
  const { name, size, slots } = server.model;
  element("model").textContent =
    `Model ${short(name)} · ${slots} slots · pictures are fitted to ${size} × ${size} pixels`;
  const samples = await server.samples();
  const page = new Page(server, samples);
  if (samples.length) await page.openSample(samples[0].id);
  else element("stage").dataset.busy = "false";
}

start().catch((problem) => {
  element("problem").textContent = problem.message;
  element("problem").hidden = false;
});
