// What can be taken away: links to the server's files for the state that is shown.

const element = (id) => document.getElementById(id);
const ZOOM = 8;

export class Exports {
  #server;
  #history;

  #name; // of the picture, for the names of files

  constructor(server, history, name) {
    this.#server = server;
    this.#history = history;
    this.#name = name;
    element("code-details").addEventListener("toggle", () => this.#code());
    element("copy").addEventListener("click", async () => {
      await navigator.clipboard.writeText(element("code").textContent);
      element("copy").textContent = "Copied";
      setTimeout(() => (element("copy").textContent = "Copy"), 1500);
    });
  }

  draw() {
    const { state, isVideo, frame } = this.#history;
    const name = this.#name();
    const large = Math.max(1, Math.min(ZOOM, Math.floor(2048 / state.size)));
    const files = [
      ["Picture", "picture.png", { frame }],
      [`Picture × ${large}`, "picture.png", { frame, zoom: large }],
      ...(state.own_size > state.size
        ? [[`Picture, ${state.own_size} × ${state.own_size}`, "own-size.png", { frame }]]
        : []),
      ...(isVideo
        ? [["Video", "video.mp4", { zoom: large }], ["GIF", "animation.gif", { zoom: large }]]
        : []),
      ...(isVideo && state.own_size > state.size
        ? [[`Video, ${state.own_size} × ${state.own_size}`, "own-size.mp4", {}]]
        : []),
      isVideo ? ["Original", "original.mp4", {}] : ["Original", "original.png", {}],
      ["Edit list", "edits.json", {}],
      ["Python, with its files", "edits.zip", {}],
    ];
    const links = files.map(([title, file, query]) => {
      const link = document.createElement("a");
      link.href = this.#server.exportAddress(state.id, file, { ...query, name });
      link.download = ""; // the server names it
      link.dataset.file = file;
      link.textContent = title;
      const kind = document.createElement("small");
      kind.textContent = file.split(".").at(-1);
      link.append(kind);
      return link;
    });
    element("exports").replaceChildren(...links);
    this.#code();
  }

  async #code() {
    if (!element("code-details").open) return;
    try {
      const answer = await this.#server.exported(this.#history.state.id, "edits.py", { name: this.#name() });
      element("code").textContent = await answer.text();
    } catch (problem) {
      element("code").textContent = problem.message;
    }
  }
}
