// @kubernetes/client-node: exec with all streams, and a forwarded port.
import assert from 'node:assert'
import { createRequire } from 'node:module'
import net from 'node:net'
import path from 'node:path'
import { PassThrough } from 'node:stream'
import { pathToFileURL } from 'node:url'

const [kubeconfig, modules, pod] = process.argv.slice(2)
const found = createRequire(path.join(modules, 'x.js')).resolve('@kubernetes/client-node')
const k8s = await import(pathToFileURL(found).href)

const config = new k8s.KubeConfig()
config.loadFromFile(kubeconfig)

function collected() {
  const stream = new PassThrough()
  stream.text = ''
  stream.on('data', (data) => { stream.text += data })
  return stream
}

async function run(command, input) {
  const out = collected(), err = collected()
  const stdin = input === undefined ? null : new PassThrough()
  const status = await new Promise((resolve, reject) => {
    setTimeout(() => reject(new Error(`${command}: no end`)), 30000).unref()
    new k8s.Exec(config)
      .exec('default', pod, 'c', command, out, err, stdin, false, resolve)
      .catch(reject)
    if (stdin) stdin.end(input)
  })
  return { status, out: out.text, err: err.text }
}

const failed = await run(['sh', '-c', 'echo out; echo err >&2; exit 7'])
assert.equal(failed.out, 'out\n')
assert.equal(failed.err, 'err\n')
assert.equal(failed.status.status, 'Failure')
assert.equal(failed.status.details.causes[0].message, '7')

const read = await run(['sh', '-c', 'read line; echo "got $line"'], 'a line\n')
assert.equal(read.out, 'got a line\n')
assert.equal(read.status.status, 'Success')

const forward = new k8s.PortForward(config)
const server = net.createServer((socket) => {
  forward.portForward('default', pod, [8080], socket, null, socket).catch(() => socket.destroy())
})
await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
const answer = await fetch(`http://127.0.0.1:${server.address().port}/page`, { headers: { Connection: 'close' } })
assert.equal(await answer.text(), 'served\n')
server.close()
process.exit(0)
