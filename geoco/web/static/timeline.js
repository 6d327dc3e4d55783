// Frames of a video: play, scrub, and say which of them edits are for.

const element = (id) => document.getElementById(id);

export class Timeline {
  #history;
  #show;
  #timer = null;

  constructor(history, show) {
    this.#history = history;
    this.#show = show;
    element("frame").addEventListener("input", (event) => {
      this.pause();
      show(Number(event.target.value));
    });
    element("play").addEventListener("click", () => this.toggle());
    for (const radio of document.querySelectorAll("input[name=scope]")) {
      radio.addEventListener("change", () => this.#scope());
    }
    for (const id of ["first", "last"]) {
      element(id).addEventListener("change", () => {
        document.querySelector("input[name=scope][value=range]").checked = true;
        this.#scope();
      });
    }
  }

  opened() {
    this.pause();
    const { state, isVideo, scope } = this.#history;
    element("timeline").hidden = !isVideo;
    document.querySelector(`input[name=scope][value=${scope.kind}]`).checked = true;
    for (const id of ["frame", "first", "last"]) element(id).max = state.frames - 1;
    element("first").value = scope.first;
    element("last").value = scope.last;
  }

  draw() {
    const { state, frame, entry, isVideo } = this.#history;
    if (!isVideo) return;
    element("frame").value = frame;
    element("frame-number").textContent = `${frame} / ${state.frames - 1}`;
    const marks = [...(entry.keyed?.keys.keys() ?? [])].map((at) => {
      const mark = document.createElement("i");
      mark.style.left = `${(100 * at) / (state.frames - 1)}%`;
      return mark;
    });
    element("keys").replaceChildren(...marks);
  }

  toggle() {
    if (this.#timer) this.pause();
    else this.#play();
  }

  pause() {
    clearInterval(this.#timer);
    this.#timer = null;
    element("play").textContent = "Play";
  }

  #play() {
    const { state } = this.#history;
    element("play").textContent = "Pause";
    let waiting = false;
    this.#timer = setInterval(async () => {
      if (waiting) return; // frames are still on their way
      waiting = true;
      await this.#show((this.#history.frame + 1) % this.#history.state.frames);
      waiting = false;
    }, 1000 / state.frames_per_second);
  }

  #scope() {
    const { scope, state } = this.#history;
    scope.kind = document.querySelector("input[name=scope]:checked").value;
    const inside = (id) => Math.min(state.frames - 1, Math.max(0, Math.round(Number(element(id).value) || 0)));
    [scope.first, scope.last] = [inside("first"), inside("last")].sort((one, other) => one - other);
    element("first").value = scope.first;
    element("last").value = scope.last;
  }
}
