// The copy buttons, which a library adds when the page is read, have a picture and no name.
window.addEventListener("load", () => {
  for (const button of document.querySelectorAll("button.copybtn")) button.ariaLabel = "Copy the code";
});
