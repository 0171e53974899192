// What a program with Amazon's SDK for JavaScript (v3) and sqs-consumer meets at ENDPOINT.
import assert from "node:assert/strict";
import * as sdk from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

const sqs = new sdk.SQSClient({
  endpoint: process.env.ENDPOINT,
  region: "us-east-1",
  credentials: { accessKeyId: "any", secretAccessKey: "any" },
  maxAttempts: 1,
});
const ask = (action, members) => sqs.send(new sdk[`${action}Command`](members));
const create = async (QueueName, Attributes) =>
  (await ask("CreateQueue", { QueueName, Attributes })).QueueUrl;
const receive = async (QueueUrl, more = {}) =>
  (await ask("ReceiveMessage", { QueueUrl, WaitTimeSeconds: 20, ...more })).Messages ?? [];
const refused = (kind, asked) => assert.rejects(asked, (error) => error instanceof sdk[kind]);

const steps = {
  async queues() {
    const url = await create("js-queues", { VisibilityTimeout: "5" });
    assert.equal(await create("js-queues", { VisibilityTimeout: "5" }), url);
    await refused("QueueNameExists", create("js-queues", { VisibilityTimeout: "6" }));
    assert.equal((await ask("GetQueueUrl", { QueueName: "js-queues" })).QueueUrl, url);
    await refused("QueueDoesNotExist", ask("GetQueueUrl", { QueueName: "js-missing" }));
    for (const n of [1, 2, 3]) await create(`js-list-${n}`);
    const urls = [];
    for await (const page of sdk.paginateListQueues({ client: sqs, pageSize: 2 }, { QueueNamePrefix: "js-list-" }))
      urls.push(...page.QueueUrls);
    assert.equal(urls.length, 3);
    await ask("TagQueue", { QueueUrl: url, Tags: { team: "blue" } });
    assert.deepEqual((await ask("ListQueueTags", { QueueUrl: url })).Tags, { team: "blue" });
    await ask("SetQueueAttributes", { QueueUrl: url, Attributes: { DelaySeconds: "1" } });
    const told = await ask("GetQueueAttributes", { QueueUrl: url, AttributeNames: ["All"] });
    assert.equal(told.Attributes.DelaySeconds, "1");
    await ask("DeleteQueue", { QueueUrl: url });
    await refused("QueueDoesNotExist", ask("SendMessage", { QueueUrl: url, MessageBody: "x" }));
  },
  async messages() {
    const QueueUrl = await create("js-messages");
    const sent = {
      text: { DataType: "String", StringValue: "grün 🐌" },
      number: { DataType: "Number", StringValue: "-1.50" },
      bytes: { DataType: "Binary.png", BinaryValue: new Uint8Array([0, 255, 10]) },
    };
    const MessageBody = "one 🐌\r\ntwo";
    await ask("SendMessage", { QueueUrl, MessageBody, MessageAttributes: sent });
    const [found] = await receive(QueueUrl, {
      MessageAttributeNames: ["All"],
      MessageSystemAttributeNames: ["All"],
    });
    assert.equal(found.Body, MessageBody);
    assert.equal(found.Attributes.ApproximateReceiveCount, "1");
    assert.equal(found.MessageAttributes.text.StringValue, sent.text.StringValue);
    assert.equal(found.MessageAttributes.number.StringValue, "-1.50");
    assert.deepEqual([...found.MessageAttributes.bytes.BinaryValue], [0, 255, 10]);
    await ask("DeleteMessage", { QueueUrl, ReceiptHandle: found.ReceiptHandle });
    await ask("DeleteMessage", { QueueUrl, ReceiptHandle: found.ReceiptHandle });
    await refused("InvalidMessageContents", ask("SendMessage", { QueueUrl, MessageBody: "\u0001" }));
  },
  async batches() {
    const QueueUrl = await create("js-batches");
    const Entries = [...Array(10).keys()].map((n) => ({
      Id: `n${n}`,
      MessageBody: `${n}`,
      DelaySeconds: n === 3 ? 901 : 0,
    }));
    const sent = await ask("SendMessageBatch", { QueueUrl, Entries });
    assert.equal(sent.Successful.length, 9);
    assert.deepEqual(sent.Failed.map((one) => [one.Id, one.SenderFault]), [["n3", true]]);
    const found = new Map();
    while (found.size < 9)
      for (const one of await receive(QueueUrl, { MaxNumberOfMessages: 10 })) found.set(one.Body, one);
    const receipts = [...found.values()].map((one, n) => ({ Id: `${n}`, ReceiptHandle: one.ReceiptHandle }));
    const longer = receipts.map((one) => ({ ...one, VisibilityTimeout: 60 }));
    assert.equal(
      (await ask("ChangeMessageVisibilityBatch", { QueueUrl, Entries: longer })).Successful.length,
      9,
    );
    assert.equal((await ask("DeleteMessageBatch", { QueueUrl, Entries: receipts })).Successful.length, 9);
    await ask("PurgeQueue", { QueueUrl });
  },
  async polls() {
    const QueueUrl = await create("js-polls");
    const began = Date.now();
    assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 1 }), []);
    assert.ok(Date.now() - began > 800);
    const waiting = receive(QueueUrl);
    await ask("SendMessage", { QueueUrl, MessageBody: "came" });
    assert.equal((await waiting)[0].Body, "came");
  },
  async receipts() {
    const QueueUrl = await create("js-receipts");
    await ask("SendMessage", { QueueUrl, MessageBody: "x" });
    const [first] = await receive(QueueUrl);
    const old = { QueueUrl, ReceiptHandle: first.ReceiptHandle };
    await ask("ChangeMessageVisibility", { ...old, VisibilityTimeout: 0 });
    const [second] = await receive(QueueUrl);
    assert.equal(second.MessageId, first.MessageId);
    await ask("DeleteMessage", old); // of a claim that is over: it must not take another's message
    await ask("ChangeMessageVisibility", { QueueUrl, ReceiptHandle: second.ReceiptHandle, VisibilityTimeout: 0 });
    const [third] = await receive(QueueUrl);
    assert.equal(third.MessageId, first.MessageId);
    await refused("ReceiptHandleIsInvalid", ask("DeleteMessage", { QueueUrl, ReceiptHandle: "nonsense" }));
  },
  async fifo() {
    const QueueUrl = await create("js-steps.fifo", { FifoQueue: "true" });
    const send = (MessageBody, MessageGroupId, MessageDeduplicationId) =>
      ask("SendMessage", { QueueUrl, MessageBody, MessageGroupId, MessageDeduplicationId });
    const { MessageId } = await send("a1", "a", "1");
    assert.equal((await send("a1 again", "a", "1")).MessageId, MessageId);
    await send("a2", "a", "2");
    await send("b1", "b", "3");
    const [a1] = await receive(QueueUrl);
    const [b1] = await receive(QueueUrl); // the group of a1 is closed
    assert.deepEqual([a1.Body, b1.Body], ["a1", "b1"]);
    await ask("DeleteMessage", { QueueUrl, ReceiptHandle: a1.ReceiptHandle });
    assert.equal((await receive(QueueUrl))[0].Body, "a2");
  },
  async dead_letters() {
    const dead = await create("js-dead");
    const of = async (QueueUrl) =>
      (await ask("GetQueueAttributes", { QueueUrl, AttributeNames: ["QueueArn"] })).Attributes.QueueArn;
    const RedrivePolicy = JSON.stringify({ deadLetterTargetArn: await of(dead), maxReceiveCount: 1 });
    const QueueUrl = await create("js-alive", { RedrivePolicy, VisibilityTimeout: "0" });
    await ask("SendMessage", { QueueUrl, MessageBody: "bad" });
    assert.equal((await receive(QueueUrl)).length, 1);
    while ((await receive(QueueUrl, { WaitTimeSeconds: 1 })).length);
    const [found] = await receive(dead, { VisibilityTimeout: 0 });
    assert.equal(found.Body, "bad");
    const sources = await ask("ListDeadLetterSourceQueues", { QueueUrl: dead });
    assert.deepEqual(sources.queueUrls, [QueueUrl]);
    await ask("StartMessageMoveTask", { SourceArn: await of(dead) });
    assert.equal((await receive(QueueUrl))[0].Body, "bad");
  },
  async consumer() {
    const queueUrl = await create("js-consumer");
    const Entries = [...Array(10).keys()].map((n) => ({ Id: `${n}`, MessageBody: `${n}` }));
    await ask("SendMessageBatch", { QueueUrl: queueUrl, Entries });
    const seen = new Set();
    await new Promise((resolve, reject) => {
      const consumer = Consumer.create({
        queueUrl,
        sqs,
        batchSize: 10,
        handleMessageBatch: async (messages) => {
          for (const one of messages) seen.add(one.Body);
          return messages;
        },
      });
      for (const event of ["error", "processing_error"]) consumer.on(event, reject);
      consumer.on("response_processed", () => {
        if (seen.size === 10) consumer.stop();
      });
      consumer.on("stopped", resolve);
      consumer.start();
    });
    const told = await ask("GetQueueAttributes", { QueueUrl: queueUrl, AttributeNames: ["All"] });
    assert.equal(told.Attributes.ApproximateNumberOfMessages, "0");
    assert.equal(told.Attributes.ApproximateNumberOfMessagesNotVisible, "0");
  },
};

for (const [name, step] of Object.entries(steps)) {
  await step();
  console.log(`done ${name}`);
}
