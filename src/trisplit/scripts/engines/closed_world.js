// The closed world: runs one script in node itself, and ends at once when it reaches for anything besides the
// language. What is asked comes on standard input: a line of JSON, then the files. What is said goes to the
// file descriptor asked for, as frames, `<kind> <bytes>\n` and the bytes: 1 and 2 are output, K is why the world
// ended, E is its good end.
//
// Reading a clock, the environment, a file, … never returns, so a script that came to its end has read nothing
// of the kind: it is a function of its text and of node. That is all the proof there is, and it needs no list
// of what is dangerous: every global that is not named below as the language's own ends the world.
'use strict';

const { readFileSync, writeSync } = require('fs');
const Module = require('module');
const vm = require('vm');
const ownRequire = require;
const { isAnyArrayBuffer, isDate, isProxy, isTypedArray } = require('util').types;
const { internalBinding } = require('internal/test/binding');

const { apply, construct, defineProperty, getOwnPropertyDescriptor, ownKeys } = Reflect;
const { setPrototypeOf } = Object;
const { parse } = JSON;
const { isArray } = Array;
const { byteLength } = Buffer;
const inheritors = [
  Object.prototype, Array.prototype, Function.prototype, String.prototype, Promise.prototype,
  Object.getPrototypeOf([][Symbol.iterator]()),
];
const { includes: stringIncludes, startsWith: stringStartsWith, charCodeAt } = String.prototype;
const reallyExit = process.reallyExit.bind(process);
const NodeError = Error;
const globalNames = ownKeys(globalThis);
const enumerable = new Set(Object.keys(globalThis));
const MOST_BYTES_AT_ONCE = 2 ** 26;
const INSPECT = Symbol.for('nodejs.util.inspect.custom');

// What takes out types takes long to start, and wants what is not allowed later.
if (process.argv[2] === 'typed') Module.stripTypeScriptTypes('const started: string = `${1}`; interface A { b: any }');

// --- saying ----------------------------------------------------------------------------------------

// From here on the script may have changed what objects of the language do: no loops over iterators, no
// regular expressions (they leave traces), no objects that inherit.

let inherited = null; // what `inheritors` hold, once the world is closed
let closed = false; // until then it is we who call, and node for us

// Node prints through parts of its own that use some of these, where we print through ours.
function refuseChanges() {
  for (let i = 0; i < inheritors.length; i++) {
    const held = inherited[i];
    if (ownKeys(inheritors[i]).length * 2 !== held.length) end('changes what others inherit');
    for (let k = 0; k < held.length; k += 2) {
      const property = getOwnPropertyDescriptor(inheritors[i], held[k]);
      if (property === undefined || property.value !== held[k + 1]) end('changes what others inherit');
    }
  }
}

function inheritedNow() {
  return inheritors.map((one) => ownKeys(one).flatMap((k) => [k, getOwnPropertyDescriptor(one, k).value]));
}

function say(kind, text) {
  if (kind !== 'K') refuseChanges();
  writeSync(asked.fd, `${kind} ${byteLength(text)}\n${text}`);
}

// What the system says of this process, among it the most memory it had at once; who started it is not part of that.
function memoryTaken() {
  try {
    return readFileSync('/proc/self/status', 'latin1');
  } catch {
    return '';
  }
}

// What node warns of, a run would show; of the three doors that we use only we are warned.
process.removeAllListeners('warning');
process.on('warning', (warning) => {
  const ours = warning.name === 'internal/test/binding' || apply(stringStartsWith, warning.message, ['stripType']) ||
    apply(stringStartsWith, warning.message, ['VM Modules']);
  if (!ours) end('makes node warn');
});

let stackWanted = false;
let doing = ''; // what an error just now would be about
const { getProxyDetails } = internalBinding('util');
const { setPrepareStackTraceCallback } = internalBinding('errors');
setPrepareStackTraceCallback((_, error, trace) => {
  if (!stackWanted) end(doing || 'reads the text of a stack');
  for (let i = 0; i < trace.length; i++) {
    const file = trace[i].getFileName();
    for (let k = 0; k < parts.length; k++) {
      if (file === parts[k].path) return `line ${trace[i].getLineNumber()}${k === 0 ? '' : ` of ${parts[k].name}`}`;
    }
  }
  return '';
});

let ended = false;

function end(why) {
  if (!ended) {
    ended = true;
    stackWanted = true;
    let place = '';
    try {
      NodeError.stackTraceLimit = 50;
      place = new NodeError().stack;
    } catch { /* a stack that is nearly full: without the line, then */ }
    say('K', apply(stringStartsWith, place, ['line ']) ? `${why}, at ${place}` : why);
  }
  reallyExit(0);
}

// --- functions that end the world, or do when they are given the wrong thing --------------------------

const originals = new WeakMap();
const facades = new WeakSet();
const [mapGet, mapSet, setHas, setAdd] =
  [WeakMap.prototype.get, WeakMap.prototype.set, WeakSet.prototype.has, WeakSet.prototype.add];

// The function as it was in all but what `traps` say; its text too.
function watched(original, traps) {
  setPrototypeOf(traps, null);
  const proxy = new Proxy(original, traps);
  apply(mapSet, originals, [proxy, original]);
  return proxy;
}

function fatal(original, why) {
  return watched(original, { apply: () => end(why), construct: () => end(why) });
}

// Puts `make(original)` in the place of a function; nothing else about the property changes.
function replace(owner, name, make) {
  const before = getOwnPropertyDescriptor(owner, name);
  if (before === undefined || typeof before.value !== 'function') return;
  defineProperty(owner, name, { ...before, value: make(before.value) });
}

function forbid(owner, names, why) {
  for (const name of names) replace(owner, name, (f) => fatal(f, `${why}${name}`));
}

function guard(owner, names, wrong) {
  for (const name of names) {
    replace(owner, name, (f) => watched(f, {
      apply(target, self, args) {
        const why = closed ? wrong(args, self, name) : '';
        return why ? end(why) : apply(target, self, args);
      },
    }));
  }
}

// An object of which nothing may be seen, not even by printing it.
function facade(target, what, allowed) {
  const traps = {};
  for (const trap of Object.getOwnPropertyNames(Reflect)) traps[trap] = () => end(`uses ${what}`);
  defineProperty(target, INSPECT, { get: () => end(`prints ${what}`) });
  const proxy = new Proxy(target, setPrototypeOf(Object.assign(traps, allowed), null));
  apply(setAdd, facades, [proxy]);
  return proxy;
}

replace(Function.prototype, 'toString', (f) => watched(f, {
  apply(target, self, args) {
    const known = typeof self === 'function';
    if (known && apply(setHas, facades, [self])) end('reads the text of a facade');
    const original = known ? apply(mapGet, originals, [self]) : undefined;
    return apply(target, original === undefined ? self : original, args);
  },
}));

// --- the language: what of it looks outside -----------------------------------------------------------

forbid(Math, ['random'], 'draws a random number: Math.');
forbid(Date, ['now'], 'reads the clock: Date.');
forbid(Date.prototype, [
  ...['getDate', 'getDay', 'getFullYear', 'getHours', 'getMilliseconds', 'getMinutes', 'getMonth', 'getSeconds'],
  ...['getTimezoneOffset', 'getYear', 'setDate', 'setFullYear', 'setHours', 'setMilliseconds', 'setMinutes'],
  ...['setMonth', 'setSeconds', 'setYear', 'toDateString', 'toString', 'toTimeString', 'toTemporalInstant'],
], 'reads the time zone: Date.');
const typedArray = Object.getPrototypeOf(Uint8Array);
for (const kind of [Date, String, Number, BigInt, Array, typedArray]) {
  const local = ownKeys(kind.prototype).filter((n) => typeof n === 'string' && n.includes('ocale'));
  forbid(kind.prototype, local, `reads the locale: ${kind.name}.`);
}

// Whether `text` goes on like `shape` from `at`, in which d is a digit; the place after it, or -1.
function goesOn(text, at, shape) {
  for (let i = 0; i < shape.length; i++) {
    const code = apply(charCodeAt, text, [at + i]);
    const wanted = apply(charCodeAt, shape, [i]);
    if (wanted === 100 ? !(code >= 48 && code <= 57) : code !== wanted) return -1;
  }
  return at + shape.length;
}

// A date alone is one of UTC; one with a time must say its zone.
function saysItsZone(text) {
  if (goesOn(text, 0, 'dddd-dd-dd') < 0) return false;
  if (text.length === 10) return true;
  let at = goesOn(text, 10, 'Tdd:dd');
  if (at < 0) return false;
  if (goesOn(text, at, ':dd') > 0) at += 3;
  if (goesOn(text, at, '.ddd') > 0) at += 4;
  if (at + 1 === text.length) return goesOn(text, at, 'Z') > 0;
  return at + 6 === text.length && (goesOn(text, at, '+dd:dd') > 0 || goesOn(text, at, '-dd:dd') > 0);
}

function wrongDate(args) {
  if (args.length === 0) return 'reads the clock: new Date()';
  if (args.length > 1) return 'reads the time zone: new Date(year, month, …)';
  const value = args[0];
  if (typeof value === 'string') return wrongText(value);
  return typeof value === 'object' && value !== null && !isDate(value) ? 'makes a Date of an object' : '';
}

function wrongText(text) {
  return saysItsZone(text) ? '' : 'may read the time zone: a date without one';
}

guard(Date, ['parse'], (args) => (typeof args[0] === 'string' ? wrongText(args[0]) : 'parses what is no text'));
replace(globalThis, 'Date', (original) => watched(original, {
  apply: () => end('reads the clock: Date()'),
  construct(target, args, as) {
    const why = wrongDate(args);
    return why ? end(why) : construct(target, args, as);
  },
}));
replace(Date.prototype, 'constructor', () => Date);

// Code from strings could import, and node is told to refuse it besides.
for (const f of [function () {}, async function () {}, function* () {}, async function* () {}]) {
  const owner = Object.getPrototypeOf(f);
  replace(owner, 'constructor', (original) => fatal(original, 'makes code from text'));
}
replace(globalThis, 'Function', () => Function.prototype.constructor);
for (const f of [async function () {}, function* () {}, async function* () {}]) {
  const original = apply(mapGet, originals, [Object.getPrototypeOf(f).constructor]);
  setPrototypeOf(original, Function); // which was the one that is no longer to be had
}

// The bits of a NaN are those of whatever compiler was at work.
const isFloats = (kind) => kind === 'Float16Array' || kind === 'Float32Array' || kind === 'Float64Array';
const kindOf = getOwnPropertyDescriptor(typedArray.prototype, Symbol.toStringTag).get;
const bufferOf = getOwnPropertyDescriptor(typedArray.prototype, 'buffer');
defineProperty(typedArray.prototype, 'buffer', { ...bufferOf, get: watched(bufferOf.get, {
  apply: (target, self, args) => (closed && isFloats(apply(kindOf, self, [])) ? end('looks at the bits of numbers') : apply(target, self, args)),
}) });
guard(DataView.prototype, ['setFloat16', 'setFloat32', 'setFloat64'], () => 'looks at the bits of numbers');

// Whether a large piece of memory can be had depends on the machine.
const tooLarge = (n) => (typeof n === 'number' && n > MOST_BYTES_AT_ONCE ? 'asks for much memory at once' : '');

function wrongMemory(name, args) {
  const first = args[0];
  if (typeof first === 'number') {
    return name === 'ArrayBuffer' && args.length > 1 ? 'makes memory that grows' : tooLarge(first);
  }
  if (args.length === 0) return '';
  if (name !== 'ArrayBuffer') {
    if (isAnyArrayBuffer(first)) return isFloats(name) ? 'looks at the bits of numbers' : '';
    if (isTypedArray(first)) return '';
    if (isArray(first) && !isProxy(first)) return tooLarge(first.length);
  }
  return 'makes memory of what may say any length';
}

for (const name of globalNames) {
  if (typeof name !== 'string' || !/^((Big)?(Ui|I)nt\d+|Uint8Clamped|Float\d+)Array$|^ArrayBuffer$/.test(name)) continue;
  replace(globalThis, name, (original) => watched(original, {
    construct(target, args, as) {
      const why = closed ? wrongMemory(name, args) : '';
      return why ? end(why) : construct(target, args, as);
    },
  }));
  replace(globalThis[name].prototype, 'constructor', () => globalThis[name]);
}
guard(ArrayBuffer.prototype, ['resize', 'transfer', 'transferToFixedLength'], (args) => tooLarge(args[0]) ||
  (typeof args[0] === 'number' || args.length === 0 ? '' : 'resizes to what is no number'));

guard(Symbol, ['for'], (args) =>
  (typeof args[0] !== 'string' || apply(stringIncludes, args[0], ['node']) ? 'asks for a symbol of node' : ''));

// The one object whose properties are not what they are outside.
const globalObject = globalThis;

function isGlobal(value) {
  let behind = value; // proxies over it show what it shows
  while (isProxy(behind)) behind = getProxyDetails(behind, false);
  return behind === globalObject;
}

const ofGlobal = (args) => (isGlobal(args[0]) ? 'looks at properties of the global object' : '');
guard(Object, ['getOwnPropertyDescriptor', 'getOwnPropertyDescriptors', 'defineProperty', 'defineProperties',
  'freeze', 'seal', 'preventExtensions', 'setPrototypeOf', 'keys', 'values', 'entries', 'getOwnPropertyNames',
  'getOwnPropertySymbols', 'isFrozen', 'isSealed'], ofGlobal);
guard(Object, ['assign'], (args) => {
  for (let i = 0; i < args.length; i++) if (isGlobal(args[i])) return ofGlobal([args[i]]);
  return '';
});
guard(Reflect, ['getOwnPropertyDescriptor', 'defineProperty', 'preventExtensions', 'setPrototypeOf', 'ownKeys'], ofGlobal);
guard(Reflect, ['set'], (args) => ofGlobal(args) || ofGlobal([args[3]]));
guard(Object.prototype, ['__lookupGetter__', '__lookupSetter__', '__defineGetter__', '__defineSetter__'],
  (_, self) => (isGlobal(self) || self === undefined || self === null ? 'looks at properties of the global object' : ''));

// --- the console --------------------------------------------------------------------------------------

let printed = 0;

function stream(fd) {
  const own = {
    write(text, then) {
      if (!closed) return true;
      printed += text.length;
      if (printed > asked.most_bytes) end('prints very much');
      say(`${fd}`, text);
      if (typeof then === 'function') then(null);
      return true;
    },
    listenerCount: () => 1,
  };
  for (const name of ['on', 'once', 'off', 'removeListener', 'emit']) own[name] = () => own;
  return own;
}
for (const [fd, name] of [[1, 'stdout'], [2, 'stderr']]) {
  defineProperty(process, name, { value: stream(fd), configurable: true, enumerable: true });
}

const STREAM_OF = {
  log: 1, info: 1, debug: 1, dir: 1, dirxml: 1, table: 1, group: 1, groupCollapsed: 1, groupEnd: 1, count: 1,
  countReset: 2, error: 2, warn: 2, assert: 2,
};
Object.setPrototypeOf(STREAM_OF, null);
const methods = new Map();
for (const name of Object.keys(STREAM_OF)) {
  methods.set(name, watched(console[name], {
    apply(target, self, args) {
      const toTerminal = STREAM_OF[name] === 1 ? asked.stdout_is_terminal : asked.stderr_is_terminal;
      if (name === 'dir' && args.length > 1) end('prints with options: console.dir');
      if (toTerminal && (name === 'table' || name === 'dir')) end('prints to a terminal, whose colours are its own');
      for (let i = 0; i < args.length; i++) {
        if (typeof args[i] === 'string') {
          if (apply(stringIncludes, args[i], ['%'])) {
            if (apply(stringIncludes, args[i], ['%o'])) end('prints what is hidden: %o');
            if (toTerminal && args.length > 1) end('prints to a terminal, whose colours are its own');
          }
        } else if (toTerminal && !(name === 'assert' && i === 0)) end('prints to a terminal, whose colours are its own');
      }
      return apply(target, self, args);
    },
  }));
}
const methodOf = methods.get.bind(methods);
const worldConsole = facade(console, 'the console', {
  get(_, name) {
    const method = methodOf(name);
    return method === undefined ? end(`uses console.${typeof name === 'string' ? name : 'symbols'}`) : method;
  },
});

// --- all other globals --------------------------------------------------------------------------------

const LANGUAGE = new Set([
  ...['Object', 'Function', 'Array', 'Number', 'parseFloat', 'parseInt', 'Infinity', 'NaN', 'undefined', 'Boolean'],
  ...['String', 'Symbol', 'Date', 'Promise', 'RegExp', 'Error', 'AggregateError', 'EvalError', 'RangeError'],
  ...['ReferenceError', 'SyntaxError', 'TypeError', 'URIError', 'SuppressedError', 'globalThis', 'global', 'JSON'],
  ...['Math', 'BigInt', 'Map', 'Set', 'WeakMap', 'WeakSet', 'Proxy', 'Reflect', 'Iterator', 'isFinite', 'isNaN'],
  ...['decodeURI', 'decodeURIComponent', 'encodeURI', 'encodeURIComponent', 'escape', 'unescape', 'ArrayBuffer'],
  ...['DataView', 'Uint8Array', 'Int8Array', 'Uint16Array', 'Int16Array', 'Uint32Array', 'Int32Array'],
  ...['Float16Array', 'Float32Array', 'Float64Array', 'Uint8ClampedArray', 'BigUint64Array', 'BigInt64Array'],
  ...['queueMicrotask', Symbol.toStringTag],
]);

// Deleted first, since what node loads late is loaded by a look at its descriptor. Those that a loop can see
// are all put back, in the order they had.
function putBack(name, property) {
  delete globalThis[name];
  defineProperty(globalThis, name, { ...property, enumerable: enumerable.has(name), configurable: true });
}

function forbidGlobal(name) {
  const text = typeof name === 'string' ? name : 'a symbol';
  putBack(name, { get: () => end(`uses ${text}`), set: () => end(`writes ${text}`) });
}

const exit = process.on.bind(process, 'exit');
let finished = false; // a module may wait for what never comes, and node then ends with another code
exit((code) => { 
  if (code !== 0 || !finished || ended) return;
  say('E', memoryTaken());
  reallyExit(0); // there is nobody left to tidy up for
});

console.log(''); // nobody hears it, and the next one is quicker

// --- what is asked ------------------------------------------------------------------------------------

// As late as can be: a node that was started ahead has all of the above behind it when it is asked.
const request = readFileSync(0);
const newline = request.indexOf(10);
const asked = JSON.parse(request.toString('utf8', 0, newline));
const parts = setPrototypeOf(asked.parts, null);
for (let i = 0, at = newline + 1; i < asked.parts.length; i++) {
  const part = asked.parts[i];
  part.source = request.toString('utf8', at, at + part.bytes).replace(/^\uFEFF/, '');
  setPrototypeOf(part.names, null);
  at += part.bytes;
}
for (let i = 0; i < parts.length; i++) {
  if (!parts[i].typed) continue;
  doing = 'is no TypeScript that node runs';
  try {
    parts[i].source = Module.stripTypeScriptTypes(parts[i].source);
  } catch {
    end(doing);
  }
  doing = '';
}

const compile = vm.compileFunction;

function closeTheWorld() {
  defineProperty(globalThis, INSPECT, { get: () => end('prints the global object'), configurable: true });
  for (const name of globalNames) {
    if (name === 'console') putBack(name, { value: worldConsole, writable: true });
    else if (!LANGUAGE.has(name)) forbidGlobal(name);
    else if (enumerable.has(name)) putBack(name, { value: globalThis[name], writable: true });
  }
  inherited = inheritedNow();
  closed = true;
}

// --- the script ---------------------------------------------------------------------------------------

const begun = setPrototypeOf({}, null); // part number → what it exports, its module, whether it has ended
const names = ['exports', 'require', 'module', '__filename', '__dirname'];

// Modules are over things of their own kind, so that messages of the engine that write them out say the same.
function moduleOf(held, path) {
  return facade(new Module(path), 'module', {
    get: (_, name) => (name === 'exports' ? held.exports : end('uses module')),
    set(_, name, value) {
      if (name !== 'exports') end('uses module');
      held.exports = value;
      return true;
    },
  });
}

function requireOf(part) {
  return facade(ownRequire, 'require', {
    apply(_, __, args) {
      const number = typeof args[0] === 'string' ? part.names[args[0]] : undefined;
      if (number === undefined) end(typeof args[0] === 'string' ? `loads ${args[0]}` : 'loads a module');
      return exportsOf(number);
    },
    get: (_, name) => (name === 'main' ? begun[0].module : end('uses require')),
  });
}

function exportsOf(number) {
  const before = begun[number];
  if (before !== undefined) {
    if (!before.ended) end('loads in a circle, of which node may warn');
    return before.exports;
  }
  return run(number, parts[number], parts[number].source);
}

function run(number, part, text) {
  const held = { __proto__: null, exports: {}, module: null, ended: false };
  held.module = moduleOf(held, part.path);
  begun[number] = held;
  let ended = false;
  try {
    if (part.json) held.exports = parsed(text);
    else {
      const main = compiled(text, part.path);
      apply(main, held.exports, [held.exports, requireOf(part), held.module, part.path, part.folder]);
    }
    ended = true;
  } finally {
    held.ended = true;
    if (!ended) begun[number] = undefined; // one that failed is run again by who asks again
  }
  return held.exports;
}

function compiled(text, path) {
  doing = 'is no CommonJS that node compiles';
  try {
    return compile(text, names, { filename: path });
  } catch {
    return end(doing);
  } finally {
    doing = '';
  }
}

function parsed(text) {
  try {
    return parse(text);
  } catch {
    return end('loads JSON that is none');
  }
}

// Modules are linked before the world is closed, for until they are evaluated none of their text runs.
function linked() {
  const modules = [];
  doing = 'is no module that node compiles';
  for (let i = 0; i < parts.length; i++) {
    try {
      modules.push(new vm.SourceTextModule(parts[i].source, { identifier: parts[i].path }));
    } catch {
      end(doing);
    }
  }
  doing = 'does not fit together';
  const link = (word, by, { attributes }) => {
    const number = parts[modules.indexOf(by)].names[word];
    if (number === undefined) end(`loads ${word}`);
    if (ownKeys(attributes).length) end('loads with attributes');
    return modules[number];
  };
  return modules[0].link(link).then(() => modules[0], () => end(doing));
}

if (asked.kind === 'module') {
  linked().then((main) => {
    doing = '';
    closeTheWorld();
    main.evaluate().then(() => { finished = true; });
  });
} else {
  closeTheWorld();
  exportsOf(0);
  finished = true;
}
