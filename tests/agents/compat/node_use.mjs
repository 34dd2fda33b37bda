// Node.js: files and watches, child processes, worker threads, a server, npm scripts.
import assert from "node:assert";
import { execFileSync, fork, spawn } from "node:child_process";
import { createHash, randomUUID } from "node:crypto";
import { once } from "node:events";
import dns from "node:dns/promises";
import fs from "node:fs";
import http from "node:http";
import os from "node:os";
import { isMainThread, parentPort, Worker } from "node:worker_threads";

if (process.send && process.argv[2] === "forked") {
    process.send("up");
    process.disconnect();
} else if (!isMainThread) {
    parentPort.once("message", (number) => parentPort.postMessage(number + 1));
} else {
    fs.writeFileSync("note.txt", "text");
    assert.equal(await fs.promises.readFile("note.txt", "utf8"), "text");

    const watcher = fs.watch(".");
    const change = once(watcher, "change");
    fs.writeFileSync("watched.txt", "x");
    await change;
    watcher.close();

    assert.equal(execFileSync("echo", ["words"]).toString(), "words\n");
    const child = spawn("sh", ["-c", "exit 7"]);
    assert.deepEqual(await once(child, "exit"), [7, null]);
    const forked = fork(process.argv[1], ["forked"]);
    const gone = once(forked, "exit");
    assert.equal((await once(forked, "message"))[0], "up");
    await gone;

    const workers = [1, 2, 3].map(() => new Worker(process.argv[1]));
    const answers = workers.map((worker) => once(worker, "message"));
    workers.forEach((worker) => worker.postMessage(41));
    for (const [answer] of await Promise.all(answers)) assert.equal(answer, 42);

    const server = http.createServer((_, response) => response.end("a page"));
    server.listen(0, "localhost");
    await once(server, "listening");
    const page = await new Promise((resolve, reject) => {
        http.get({ host: "localhost", port: server.address().port }, (response) => {
            response.setEncoding("utf8");
            response.once("data", resolve);
        }).once("error", reject);
    });
    assert.equal(page, "a page");
    server.close();

    const before = Date.now();
    await assert.rejects(dns.lookup("example.com"));
    assert.ok(Date.now() - before < 1000);

    assert.ok(os.userInfo().username && os.cpus().length && os.networkInterfaces().lo);
    assert.ok(fs.existsSync(os.tmpdir()) && randomUUID() && createHash("sha256").update("x"));
    console.log("all of it works");
}
