// The page: what is open, what is selected, and which part tells which.

import { Server } from "./api.js";
import { Exports } from "./exports.js";
import { Frame } from "./frames.js";
import { toEdit, Gestures } from "./gestures.js";
import { History } from "./history.js";
import { listenToKeys } from "./keyboard.js";
import { Latest } from "./latest.js";
import { askForStates, hasWork, recall, remember } from "./memory.js";
import { toSentence } from "./messages.js";
import { Numbers, Objects } from "./objects.js";
import { Stage } from "./stage.js";
import { Timeline } from "./timeline.js";
import { Tray } from "./tray.js";
import { sendFile } from "./uploading.js";

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
      resplit: (share) => this.resplit(share),
    });
    this.objects = new Objects((slot) => this.select(slot));
    this.numbers = new Numbers({
      model: server.model,
      preview: (edit) => this.previews.push(edit),
      commit: (edit) => this.finish(edit),
    });
    this.timeline = new Timeline(this.history, (frame) => this.scrub(frame));
    this.exports = new Exports(server, this.history, () => this.name);
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
    return this.open({ load: (again) => this.server.openSample(id, again), name: id, sample: id, seed });
  }

  openFile(file) {
    const load = (again) => sendFile(this.server, file, element("upload"), again);
    return this.open({ load, name: file.name });
  }

  // `origin.load(seed)` asks the server; the same scene can be opened again from other places.
  async open(origin) {
    this.gestures.cancel();
    this.uncover();
    await this.busy(() => this.history.begin(() => origin.load(origin.seed), origin));
  }

  async lookAgain() {
    const { origin } = this.history;
    if (origin) await this.open({ ...origin, seed: (origin.seed ?? 42) + 1 });
  }

  // Go on where a page of this session was before it was loaded again; false where that is gone.
  async restore() {
    const work = recall(this.server);
    if (!work) return false;
    await this.busy(async () => {
      const known = await askForStates(this.server, work);
      if (!known.size) return;
      const { name, sample, seed } = work;
      const start = [...known.values()][0].id;
      const load = sample
        ? (again) => this.server.openSample(sample, again)
        : (again) => this.server.openAgain(start, again);
      await this.history.restore(known, work, { load, name, sample, seed });
    });
    return this.history.at >= 0;
  }

  // For the names of files that are taken away.
  get name() {
    const stem = (this.history.origin?.name ?? "picture").replace(/\.[^.]*$/, "");
    return stem.normalize("NFC").replace(/[^\p{L}\p{N}_]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "picture";
  }

  // -- editing ----------------------------------------------------------------------------------

  select(slot) {
    this.stage.selected = slot;
    this.draw();
  }

  // The outline follows at once, the picture as fast as it comes.
  follow(edit) {
    this.stage.draw();
    if (!edit) return;
    this.uncover();
    this.previews.push(edit);
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

  // What is edited is what the model draws, not the original.
  uncover() {
    if (isPressed("original")) this.press("original");
  }

  commit(edit) {
    this.uncover();
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

  // What is new in full; of edits before, how many warnings there are and on request which.
  say(warnings, all = []) {
    const text = warnings.map(toSentence).join(" ");
    const earlier = all.filter((warning) => !warnings.includes(warning));
    if (element("new-warnings").textContent !== text) element("new-warnings").textContent = text;
    const details = element("earlier");
    details.hidden = earlier.length === 0;
    details.querySelector("summary").textContent =
      earlier.length === 1 ? "1 warning of an earlier edit" : `${earlier.length} warnings of earlier edits`;
    const items = earlier.map((warning) => {
      const item = document.createElement("li");
      item.textContent = toSentence(warning);
      return item;
    });
    details.querySelector("ul").replaceChildren(...items);
    element("warnings").hidden = !text && !earlier.length;
  }

  // That the model does not know such pictures, until it is dismissed.
  doubt() {
    const { doubt } = this.history.entries[0].state.quality;
    element("doubt-text").textContent = doubt ? toSentence(doubt) : "";
    element("doubt").hidden = !doubt;
  }

  async changed(what) {
    const { state, view } = this.history;
    if (!view) return;
    this.stage.frame = view;
    this.stage.shown = this.stage.settling = null;
    element("stage").dataset.state = state.id;
    if (what === "opened" || what === "restored") {
      this.stage.selected = null;
      this.timeline.opened();
      this.mark();
      this.doubt();
    }
    remember(this.server, this.history, this.history.origin.name);
    this.say(what === "opened" ? state.notes : state.new_warnings, state.warnings);
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
    const { sample } = this.history.origin;
    for (const button of element("samples").children) {
      button.setAttribute("aria-pressed", String(button.dataset.sample === sample));
    }
  }

  // -- before and after -------------------------------------------------------------------------

  async compare() {
    const covered = isPressed("original");
    const original = covered ? await this.picture("original.png").catch((problem) => this.fail(problem)) : null;
    this.stage.original = original ?? null;
    const on = isPressed("compare");
    element("comparison").hidden = !on;
    const before = on ? await this.before().catch((problem) => this.fail(problem)) : null;
    this.stage.before = before ?? null;
    this.stage.split = Number(element("split").value) / 100;
    this.stage.draw();
  }

  before() {
    return this.picture(element("before").value === "original" ? "original.png" : "picture.png");
  }

  // What was before all edits, in this frame.
  async picture(file) {
    const { entries, frame } = this.history;
    const answer = await this.server.exported(entries[0].state.id, file, { frame });
    return createImageBitmap(await answer.blob());
  }

  resplit(share) {
    element("split").value = Math.round(100 * share);
    this.stage.split = share;
    this.stage.draw();
  }

  // A button that stays down until it is pressed again.
  press(id) {
    const button = element(id);
    button.setAttribute("aria-pressed", String(!isPressed(id)));
    if (id === "outlines") this.stage.showOutlines = isPressed(id);
    if (id === "original") element("show-original").textContent = isPressed(id) ? "Show the model's picture" : "Show the original";
    return this.compare();
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
    for (const id of ["outlines", "original", "compare"]) click(id, () => this.press(id));
    click("show-original", () => this.press("original"));
    click("dismiss", () => {
      element("doubt").hidden = true;
      element("overlay").focus();
    });
    element("split").addEventListener("input", ({ target }) => this.resplit(Number(target.value) / 100));
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

const isPressed = (id) => element(id).getAttribute("aria-pressed") === "true";

// A model may be a file or a folder: its last name will do.
const short = (name) => name.replace(/\/weights\.safetensors$/, "").split("/").at(-1);

async function start() {
  const server = await Server.begin();
  const { name, size, slots } = server.model;
  element("model").textContent =
    `Model ${short(name)} · ${slots} slots · pictures are fitted to ${size} × ${size} pixels`;
  const samples = await server.samples();
  const page = new Page(server, samples);
  const lost = hasWork();
  if (await page.restore()) return;
  if (samples.length) await page.openSample(samples[0].id);
  else element("stage").dataset.busy = "false";
  if (lost) page.fail({ message: "The server has forgotten what was open here: open it again." });
}

start().catch((problem) => {
  element("problem").textContent = problem.message;
  element("problem").hidden = false;
});
