// Requests and the live connection. The token is asked for once, kept for this tab, and sent in headers and messages only.

const KEY = "nestbed-token";
let asking = null;

export class Problem extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export async function request(method, path, body, kind = "json") {
  let answer;
  try {
    answer = await fetch(path, { method, headers: headers(body), body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store" });
  } catch {
    throw new Problem(0, "The server does not answer; it may be starting again.");
  }
  if (answer.status === 401) {
    await token();
    return request(method, path, body, kind);
  }
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new Problem(answer.status, told.error || `The server answered with ${answer.status}.`);
  }
  return kind === "json" ? answer.json() : answer.blob();
}

// As request, but asks again for what is on its way, and where no answer came: the server counts each step once.
export async function patiently(method, path, body, kind = "json", tries = 60) {
  for (let i = 0; ; i++) {
    try {
      return await request(method, path, body, kind);
    } catch (problem) {
      if (![0, 503].includes(problem.status) || i >= tries) throw problem;
      await new Promise((resolve) => setTimeout(resolve, 1500));
    }
  }
}

export async function download(path, name) {
  const blob = await patiently("GET", path, undefined, "blob", 400);
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function headers(body) {
  const found = body === undefined ? {} : { "Content-Type": "application/json" };
  const kept = sessionStorage.getItem(KEY);
  return kept ? { ...found, Authorization: `Bearer ${kept}` } : found;
}

function token() {
  asking ??= new Promise((resolve) => {
    const dialog = document.getElementById("door"), input = document.getElementById("token");
    document.getElementById("door-problem").textContent = sessionStorage.getItem(KEY) ? "That token is not right." : "";
    input.value = "";
    dialog.onclose = () => {
      sessionStorage.setItem(KEY, input.value.trim());
      asking = null;
      resolve();
    };
    dialog.oncancel = (event) => event.preventDefault();
    dialog.showModal();
  });
  return asking;
}

// Watches something until stop() is called; connects again by itself, and says so meanwhile.
export function watch(wish, tell) {
  const light = document.getElementById("connection");
  let socket, timer, over = false, wait = 300;
  const connect = () => {
    socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/live`);
    socket.onopen = () => socket.send(JSON.stringify({ ...wish, token: sessionStorage.getItem(KEY) || "" }));
    socket.onmessage = (event) => {
      wait = 300;
      state(false);
      tell(JSON.parse(event.data));
    };
    socket.onclose = async (event) => {
      if (over) return;
      if (event.code === 4404) return;
      if (event.code === 4401) await token();
      else state(true);
      timer = setTimeout(connect, wait);
      wait = Math.min(3000, wait * 1.6);
    };
  };
  const state = (lost) => {
    light.textContent = lost ? "No connection: trying again" : "Live";
    light.toggleAttribute("data-lost", lost);
  };
  connect();
  return () => {
    over = true;
    clearTimeout(timer);
    light.textContent = "";
    light.removeAttribute("data-lost");
    socket.close();
  };
}
