#!/usr/bin/env node
// Perfetto's trace processor, as WebAssembly, behind the HTTP endpoints of trace_processor_shell:
//   trace_processor_shell.js --wasm-folder DIR --http-port N
// DIR holds trace_processor.wasm and Perfetto's engine bundle, as a build of its UI does.
'use strict';
const fs = require('fs');
const http = require('http');
const path = require('path');
const vm = require('vm');

const BUNDLES = ['engine_bundle.js', 'engine_bundle.node.js'];
// TraceProcessorRpc in trace_processor.proto: method, field of the argument, field of the result.
const ENDPOINTS = {
  '/parse': { method: 1, argument: 101, result: 201, appends: true },
  '/notify_eof': { method: 2, result: 212 },
  '/query': { method: 3, argument: 103, result: 203 },
  '/status': { method: 10, result: 210 },
};
const MESSAGE = 1, REQUEST = 2, INVALID_REQUEST = 4, FATAL_ERROR = 5;

function option(name) {
  const at = process.argv.indexOf(name);
  if (at < 0 || at + 1 >= process.argv.length) throw new Error(`${name} is needed`);
  return process.argv[at + 1];
}

// ---- the engine: a web worker's bundle, run in a context that looks like a web worker ----

function workerGlobals(folder) {
  const read = (url) => {
    const bytes = fs.readFileSync(path.join(folder, path.basename(String(url))));
    return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.byteLength);
  };
  class XMLHttpRequest {
    open(_method, url) { this.url = url; }
    send() { this.response = read(this.url); this.status = 200; }
  }
  const fetch = async (url) => ({ ok: true, arrayBuffer: async () => read(url) });
  const log = (...words) => console.error(...words);
  return {
    XMLHttpRequest, fetch, TextDecoder, TextEncoder, performance, setTimeout, clearTimeout, URL,
    WorkerGlobalScope: class {}, location: { href: 'http://localhost/engine_bundle.js' },
    console: { log, warn: () => {}, error: log },
  };
}

function startEngine(folder) {
  const name = BUNDLES.find((bundle) => fs.existsSync(path.join(folder, bundle)));
  if (!name) throw new Error(`${folder} has none of ${BUNDLES.join(', ')}`);
  const worker = workerGlobals(folder);
  worker.self = worker;
  vm.createContext(worker);
  vm.runInContext(fs.readFileSync(path.join(folder, name), 'utf8'), worker, { filename: name });
  const replies = [];
  const port = { onmessage: null, postMessage: (bytes) => replies.push(Buffer.from(bytes)) };
  worker.onmessage({ data: port });
  const WorkerBytes = vm.runInContext('Uint8Array', worker);
  // The engine answers before onmessage returns.
  return (request) => {
    replies.length = 0;
    port.onmessage({ data: WorkerBytes.from(request) });
    return Buffer.concat(replies);
  };
}

// ---- the few bytes of protobuf that frame a call ----

function varint(number) {
  const bytes = [];
  for (; number > 127; number = Math.floor(number / 128)) bytes.push((number % 128) | 128);
  return Buffer.from([...bytes, number]);
}

const number = (field, value) => Buffer.concat([varint(field * 8), varint(value)]);
const bytes = (field, body) => Buffer.concat([varint(field * 8 + 2), varint(body.length), body]);

function* fields(buffer) {
  let at = 0;
  const next = () => {
    let value = 0, scale = 1, byte;
    do { byte = buffer[at++]; value += (byte & 127) * scale; scale *= 128; } while (byte > 127);
    return value;
  };
  while (at < buffer.length) {
    const key = next(), kind = key % 8;
    if (kind !== 0 && kind !== 2) throw new Error(`unexpected wire type ${kind}`);
    const value = next();
    yield { field: Math.floor(key / 8), body: kind === 2 ? buffer.subarray(at, at + value) : value };
    if (kind === 2) at += value;
  }
}

function call(engine, endpoint, body) {
  const argument = endpoint.argument ? bytes(endpoint.argument, body) : Buffer.alloc(0);
  const reply = engine(bytes(MESSAGE, Buffer.concat([number(REQUEST, endpoint.method), argument])));
  const results = [];
  for (const { body: message } of fields(reply)) {
    for (const { field, body: part } of fields(message)) {
      if (field === FATAL_ERROR) throw new Error(String(part));
      if (field === INVALID_REQUEST) throw new Error(`the engine does not know method ${part}`);
      if (field === endpoint.result) results.push(part);
    }
  }
  return Buffer.concat(results); // Batches of a result, concatenated, are that result.
}

// ---- the server ----

function answer(engine, url, body) {
  const endpoint = ENDPOINTS[url];
  if (!endpoint) return [404, Buffer.from(`no endpoint ${url}`)];
  try {
    return [200, call(engine, endpoint, body)];
  } catch (error) {
    console.error(error);
    return [500, Buffer.from(String(error))];
  }
}

function serve(engine, portNumber) {
  const server = http.createServer((request, response) => {
    const chunks = [];
    request.on('data', (chunk) => chunks.push(chunk));
    request.on('end', () => {
      const [status, body] = answer(engine, request.url, Buffer.concat(chunks));
      response.writeHead(status, { 'Content-Length': body.length });
      response.end(body);
    });
  });
  server.listen(portNumber, '127.0.0.1');
}

serve(startEngine(option('--wasm-folder')), Number(option('--http-port')));
