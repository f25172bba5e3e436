// Runs the public HTTP cache suite (https://cache-tests.fyi, npm: http-cache-tests) against `picaflor serve` as a
// reverse proxy, and compares what failed with the list of what is known to fail and why.
//
//   scripts/conformance PROGRAM [TEST...]
//
// A test that fails is run once more, alone: most of them wait for seconds to pass, and a busy machine may be late. The
// run fails if a required or optimal test fails that is not on the list, and if one on the list does not fail any more.
// The tests called checks only ask what a cache does; they are counted.

import { spawn } from 'node:child_process'
import fs from 'node:fs'
import net from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { createRequire } from 'node:module'
import { pathToFileURL } from 'node:url'

const [program, ...only] = process.argv.slice(2)
const here = import.meta.dirname ?? path.dirname(new URL(import.meta.url).pathname)
const known = JSON.parse(fs.readFileSync(path.join(here, 'known.json')))
const suite = path.resolve('node_modules/http-cache-tests')
const load = file => import(pathToFileURL(path.join(suite, file)))
const { runTests, getResults } = await load('client/runner.mjs')
const { testResults } = await load('client/test.mjs')
const { determineTestResult } = await load('lib/display.mjs')
const suites = [...(await load('tests/index.mjs')).default, (await load('tests/surrogate-control.mjs')).default]
const fetch = createRequire(path.join(suite, 'cli.mjs'))('node-fetch')
const tests = suites.flatMap(suite => suite.tests).filter(test => !test.browser_only)
const kind = test => test.kind ?? 'required'

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'conformance-'))
const children = []
process.on('exit', () => {
  children.forEach(child => child.kill('SIGKILL'))
  fs.rmSync(folder, { recursive: true, force: true })
})

function freePort () {
  return new Promise(resolve => {
    const server = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address()
      server.close(() => resolve(port))
    })
  })
}

// Starts a program and waits until it listens.
async function start (name, command, args, options, port) {
  const log = path.join(folder, `${name}.log`)
  const out = fs.openSync(log, 'w')
  const child = spawn(command, args, { ...options, stdio: ['ignore', out, out] })
  children.push(child)
  let ended
  child.on('error', error => { ended = error.message })
  child.on('exit', code => { ended ??= `it ended with status ${code}` })
  for (let tries = 0; tries < 200 && ended === undefined; tries++) {
    const there = await new Promise(resolve => {
      const socket = net.connect(port, '127.0.0.1', () => { socket.destroy(); resolve(true) })
      socket.on('error', () => resolve(false))
    })
    if (there) return
    await new Promise(resolve => setTimeout(resolve, 50))
  }
  console.error(`${name} does not listen: ${ended ?? 'no answer for 10 s'}\n${fs.readFileSync(log)}`)
  process.exit(1)
}

const [origin, listen, admin] = [await freePort(), await freePort(), await freePort()]
const settings = { protocol: 'http', port: origin, pidfile: path.join(folder, 'pid') }
const named = Object.entries(settings).map(([name, value]) => [`npm_config_${name}`, String(value)])
await start('the origin', process.execPath, ['--no-warnings', 'server/server.mjs'],
  { cwd: suite, env: { ...process.env, ...Object.fromEntries(named) } }, origin)
await start('picaflor', path.resolve(program), ['serve', '--origin', `http://127.0.0.1:${origin}`,
  '--listen', `127.0.0.1:${listen}`, '--admin', `127.0.0.1:${admin}`, '--store', path.join(folder, 'store'),
  '--capacity', '256MiB', '--memory', '32MiB'], { cwd: folder }, listen)

// The runner of the suite adds to a list of its own, so every run gets a copy of it that starts empty.
async function run (tests, chunk, copy) {
  const runner = copy ? (await import(`${pathToFileURL(path.join(suite, 'client/runner.mjs'))}?${copy}`)).runTests : runTests
  tests.forEach(test => delete testResults[test.id])
  await runner([{ tests }], fetch, false, `http://127.0.0.1:${listen}`, chunk)
}

const wanted = only.length ? tests.filter(test => only.includes(test.id)) : tests
const passed = id => testResults[id] === true
await run(wanted, 100)
const failed = wanted.filter(test => kind(test) !== 'check' && !passed(test.id))
if (failed.length) await run(failed, 20, 'again')

// What a test says when its own preparation failed, or one that it builds on.
const results = getResults()
const symbols = { '✅': 'passed', '⛔️': 'failed', '⚠️': 'failed', Y: 'yes', N: 'no' }
const count = {}
for (const test of wanted) {
  const outcome = symbols[determineTestResult(suites, test.id, results)[2]] ?? 'blocked'
  const row = count[kind(test)] ??= {}
  row[outcome] = (row[outcome] ?? 0) + 1
}
for (const [name, row] of Object.entries(count).sort()) {
  console.log(`${name.padEnd(8)} ${Object.entries(row).sort().map(([outcome, n]) => `${n} ${outcome}`).join(', ')}`)
}

const reason = Object.fromEntries(known.flatMap(({ why, tests }) => tests.map(id => [id, why])))
const wrong = []
for (const test of wanted.filter(test => kind(test) !== 'check')) {
  if (!passed(test.id) && !(test.id in reason)) {
    wrong.push(`${test.id} (${kind(test)}): ${test.name}\n    ${[results[test.id]].flat().join(': ')}`)
  } else if (passed(test.id) && test.id in reason) {
    wrong.push(`${test.id} passes now: take it off known.json`)
  }
}
const ids = new Set(tests.map(test => test.id))
wrong.push(...Object.keys(reason).filter(id => !ids.has(id)).map(id => `${id} is on known.json and not in the suite`))
if (wrong.length) {
  console.error(`\nnot as known.json says:\n${wrong.join('\n')}`)
  process.exit(1)
}
console.log(`${wanted.length} tests, all as known.json says`)
process.exit(0)
