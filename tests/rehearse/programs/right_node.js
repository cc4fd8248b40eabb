// Right: the same in JavaScript.
const fs = require('fs');
let told = false;
process.on('SIGTERM', () => { told = true; });
let state = fs.existsSync('state.json') ? JSON.parse(fs.readFileSync('state.json')) : { step: 0, sum: 0 };
function replace(path, text) {
  fs.writeFileSync(path + '.tmp', text);
  fs.renameSync(path + '.tmp', path);
}
function next() {
  if (state.step >= 25) {
    replace('result.txt', `${state.sum}\n`);
    process.exit(0);
  }
  state = { step: state.step + 1, sum: (state.sum * 31 + state.step) % 1000003 };
  if (state.step % 5 === 0 || told) replace('state.json', JSON.stringify(state));
  if (told) process.exit(75);
  setTimeout(next, 40);
}
next();
