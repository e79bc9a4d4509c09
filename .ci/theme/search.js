// A browser runs no worker of a page that was opened from a disk. There the theme's
// search runs in a hidden frame instead, which takes and gives the same messages.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(address) {
      super()
      const frame = document.createElement("iframe")
      frame.hidden = true
      const script = document.createElement("script")
      script.src = address
      frame.srcdoc = script.outerHTML
      this.frame = new Promise((loaded) => {
        frame.onload = () => loaded(frame.contentWindow)
      })
      this.frame.then((inner) => {
        inner.postMessage = (data) =>
          this.dispatchEvent(new MessageEvent("message", { data }))
      })
      document.body.append(frame)
    }

    postMessage(data) {
      this.frame.then((inner) =>
        inner.dispatchEvent(new inner.MessageEvent("message", { data })),
      )
    }
  }
  window.Worker = window.IFrameWorker
}

// The theme searches when a key is released. What is pasted by mouse or composed by an
// input method, as ε may be, releases none.
document.addEventListener("input", ({ target }) => {
  if (target.matches(".md-search__input")) {
    target.dispatchEvent(new Event("keyup"))
  }
})
