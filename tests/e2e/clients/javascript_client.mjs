// @kubernetes/client-node: an object's whole life with typed calls, a watch, and applying.
import assert from 'node:assert'
import { createRequire } from 'node:module'
import path from 'node:path'
import { pathToFileURL } from 'node:url'

const [kubeconfig, modules] = process.argv.slice(2)
const found = createRequire(path.join(modules, 'x.js')).resolve('@kubernetes/client-node')
const k8s = await import(pathToFileURL(found).href)

const config = new k8s.KubeConfig()
config.loadFromFile(kubeconfig)
const core = config.makeApiClient(k8s.CoreV1Api)
const namespace = 'default', name = 'javascript'

const seen = []
let ended
const over = new Promise((resolve, reject) => {
  ended = resolve
  setTimeout(() => reject(new Error(`only ${seen}`)), 30000).unref()
})
const watch = new k8s.Watch(config)
const request = await watch.watch(
  `/api/v1/namespaces/${namespace}/configmaps`, { fieldSelector: `metadata.name=${name}` },
  (type) => { seen.push(type); if (type === 'DELETED') ended() },
  () => {},
)

await core.createNamespacedConfigMap({ namespace, body: { metadata: { name }, data: { a: '1' } } })
const read = await core.readNamespacedConfigMap({ namespace, name })
assert.deepEqual(read.data, { a: '1' })
read.data.b = '2'
await core.replaceNamespacedConfigMap({ namespace, name, body: read })
const patch = [{ op: 'add', path: '/data/c', value: '3' }]
await core.patchNamespacedConfigMap({ namespace, name, body: patch })
const list = await core.listNamespacedConfigMap({ namespace })
const same = list.items.find((one) => one.metadata.name === name)
assert.deepEqual(same.data, { a: '1', b: '2', c: '3' })
await assert.rejects(core.replaceNamespacedConfigMap({ namespace, name, body: read }), { code: 409 })
await core.deleteNamespacedConfigMap({ namespace, name })
await over
request.abort()
assert.deepEqual(seen, ['ADDED', 'MODIFIED', 'MODIFIED', 'DELETED'])

// Server-side apply by two managers, of a kind found by discovery.
const objects = k8s.KubernetesObjectApi.makeApiClient(config)
const wanted = (data) => ({
  apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace }, data,
})
const apply = (manager, data, force = false) => objects.patch(
  wanted(data), undefined, undefined, manager, force, k8s.PatchStrategy.ServerSideApply,
)
await apply('one', { a: '1', b: '1' })
const both = await apply('two', { c: '1' })
assert.deepEqual(both.data, { a: '1', b: '1', c: '1' })
await assert.rejects(apply('two', { a: '2' }), (error) =>
  error.code === 409 && JSON.parse(error.body).details.causes[0].field === '.data.a')
assert.equal((await apply('two', { a: '2' }, true)).data.a, '2')
assert.deepEqual((await apply('one', {})).data, { a: '2' })
await objects.delete(wanted({}))
process.exit(0)
