// What a program with Amazon's SDK for Java (2), and its batch manager, meets at ENDPOINT.

import static software.amazon.awssdk.services.sqs.model.MessageSystemAttributeName.ALL;

import java.net.URI;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import software.amazon.awssdk.auth.credentials.AwsBasicCredentials;
import software.amazon.awssdk.auth.credentials.StaticCredentialsProvider;
import software.amazon.awssdk.core.SdkBytes;
import software.amazon.awssdk.regions.Region;
import software.amazon.awssdk.services.sqs.SqsAsyncClient;
import software.amazon.awssdk.services.sqs.SqsClient;
import software.amazon.awssdk.services.sqs.model.*;

public class Client {
    static final URI ENDPOINT = URI.create(System.getenv("ENDPOINT"));
    static final StaticCredentialsProvider KEY =
        StaticCredentialsProvider.create(AwsBasicCredentials.create("any", "any"));
    static final SqsClient SQS = SqsClient.builder()
        .endpointOverride(ENDPOINT).region(Region.US_EAST_1).credentialsProvider(KEY).build();

    interface Step {
        void run() throws Exception;
    }

    static void check(boolean holds, Object... what) {
        if (!holds) throw new AssertionError(List.of(what));
    }

    static void refused(Class<? extends Exception> kind, Step step) throws Exception {
        try {
            step.run();
        } catch (Exception error) {
            if (kind.isInstance(error)) return;
            throw error;
        }
        throw new AssertionError("not refused: " + kind);
    }

    static String create(String name, Map<QueueAttributeName, String> attributes) {
        return SQS.createQueue(q -> q.queueName(name).attributes(attributes)).queueUrl();
    }

    static String create(String name) {
        return SQS.createQueue(q -> q.queueName(name)).queueUrl();
    }

    static void send(String url, String body) {
        SQS.sendMessage(m -> m.queueUrl(url).messageBody(body));
    }

    static List<Message> receive(String url, int most, int wait) {
        return SQS.receiveMessage(r -> r.queueUrl(url).waitTimeSeconds(wait)
            .maxNumberOfMessages(most).messageAttributeNames("All").messageSystemAttributeNames(ALL))
            .messages();
    }

    static Message one(String url) {
        List<Message> found = receive(url, 1, 20);
        check(found.size() == 1, found);
        return found.get(0);
    }

    static void remove(String url, String receipt) {
        SQS.deleteMessage(d -> d.queueUrl(url).receiptHandle(receipt));
    }

    static void hide(String url, Message found, int seconds) {
        SQS.changeMessageVisibility(
            c -> c.queueUrl(url).receiptHandle(found.receiptHandle()).visibilityTimeout(seconds));
    }

    static String told(String url, QueueAttributeName name) {
        return SQS.getQueueAttributes(g -> g.queueUrl(url).attributeNames(name)).attributes().get(name);
    }

    static void queues() throws Exception {
        Map<QueueAttributeName, String> five = Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "5");
        String url = create("java-queues", five);
        check(create("java-queues", five).equals(url));
        refused(QueueNameExistsException.class,
            () -> create("java-queues", Map.of(QueueAttributeName.VISIBILITY_TIMEOUT, "6")));
        refused(QueueDoesNotExistException.class, () -> SQS.getQueueUrl(g -> g.queueName("java-missing")));
        for (int n = 0; n < 3; n++) create("java-list-" + n);
        check(SQS.listQueuesPaginator(l -> l.queueNamePrefix("java-list-").maxResults(2))
            .queueUrls().stream().count() == 3);
        SQS.tagQueue(t -> t.queueUrl(url).tags(Map.of("team", "blue")));
        check(SQS.listQueueTags(l -> l.queueUrl(url)).tags().equals(Map.of("team", "blue")));
        SQS.setQueueAttributes(
            s -> s.queueUrl(url).attributes(Map.of(QueueAttributeName.DELAY_SECONDS, "1")));
        check(told(url, QueueAttributeName.DELAY_SECONDS).equals("1"));
        SQS.deleteQueue(d -> d.queueUrl(url));
        refused(QueueDoesNotExistException.class, () -> send(url, "x"));
    }

    static void messages() throws Exception {
        String url = create("java-messages"), body = "one \uD83D\uDC0C\r\ntwo";
        SdkBytes bytes = SdkBytes.fromByteArray(new byte[] {0, (byte) 255, 10});
        Map<String, MessageAttributeValue> given = Map.of(
            "text", MessageAttributeValue.builder().dataType("String").stringValue("gr\u00FCn").build(),
            "number", MessageAttributeValue.builder().dataType("Number").stringValue("-1.50").build(),
            "bytes", MessageAttributeValue.builder().dataType("Binary.png").binaryValue(bytes).build());
        SQS.sendMessage(m -> m.queueUrl(url).messageBody(body).messageAttributes(given));
        Message found = one(url);
        check(found.body().equals(body), found);
        check(found.messageAttributes().equals(given), found);
        check(found.attributes().get(MessageSystemAttributeName.APPROXIMATE_RECEIVE_COUNT).equals("1"));
        remove(url, found.receiptHandle());
        remove(url, found.receiptHandle());
        refused(InvalidMessageContentsException.class, () -> send(url, "\u0001"));
    }

    static void batches() throws Exception {
        String url = create("java-batches");
        List<SendMessageBatchRequestEntry> entries = IntStream.range(0, 10).mapToObj(
            n -> SendMessageBatchRequestEntry.builder().id("" + n).messageBody("x")
                .delaySeconds(n == 3 ? 901 : 0).build()).toList();
        SendMessageBatchResponse sent = SQS.sendMessageBatch(s -> s.queueUrl(url).entries(entries));
        check(sent.successful().size() == 9 && sent.failed().get(0).id().equals("3"), sent);
        for (int left = 9; left > 0;) {
            List<Message> found = receive(url, 10, 20);
            List<DeleteMessageBatchRequestEntry> ended = found.stream().map(
                m -> DeleteMessageBatchRequestEntry.builder().id(m.messageId())
                    .receiptHandle(m.receiptHandle()).build()).toList();
            check(SQS.deleteMessageBatch(d -> d.queueUrl(url).entries(ended)).failed().isEmpty());
            left -= found.size();
        }
        SQS.purgeQueue(p -> p.queueUrl(url));
    }

    static void polls() throws Exception {
        String url = create("java-polls");
        long began = System.nanoTime();
        check(receive(url, 1, 1).isEmpty());
        check(System.nanoTime() - began > 800_000_000L);
        CompletableFuture<Message> came = CompletableFuture.supplyAsync(() -> one(url));
        send(url, "came");
        check(came.get().body().equals("came"));
    }

    static void receipts() throws Exception {
        String url = create("java-receipts");
        send(url, "x");
        Message first = one(url);
        hide(url, first, 0);
        Message second = one(url);
        check(second.messageId().equals(first.messageId()));
        remove(url, first.receiptHandle()); // of a claim that is over: another's stays
        hide(url, second, 0);
        check(one(url).messageId().equals(first.messageId()));
        refused(ReceiptHandleIsInvalidException.class, () -> remove(url, "nonsense"));
    }

    static String put(String url, String body, String group, String id) {
        return SQS.sendMessage(m -> m.queueUrl(url).messageBody(body).messageGroupId(group)
            .messageDeduplicationId(id)).messageId();
    }

    static void fifo() {
        String url = create("java-steps.fifo", Map.of(QueueAttributeName.FIFO_QUEUE, "true"));
        check(put(url, "a1", "a", "1").equals(put(url, "a1 again", "a", "1")));
        put(url, "a2", "a", "2");
        put(url, "b1", "b", "3");
        Message a1 = one(url), b1 = one(url); // the group of a1 is closed
        check(a1.body().equals("a1") && b1.body().equals("b1"), a1, b1);
        remove(url, a1.receiptHandle());
        check(one(url).body().equals("a2"));
    }

    static void deadLetters() {
        String dead = create("java-dead"), arn = told(dead, QueueAttributeName.QUEUE_ARN);
        String policy = "{\"deadLetterTargetArn\": \"" + arn + "\", \"maxReceiveCount\": \"1\"}";
        String url = create("java-alive", Map.of(
            QueueAttributeName.REDRIVE_POLICY, policy, QueueAttributeName.VISIBILITY_TIMEOUT, "0"));
        send(url, "bad");
        one(url);
        while (!receive(url, 1, 1).isEmpty()) {}
        Message found = one(dead);
        check(found.body().equals("bad"));
        hide(dead, found, 0);
        SQS.startMessageMoveTask(t -> t.sourceArn(arn));
        check(one(url).body().equals("bad"));
    }

    // Each of these futures ends only if the answer of its batch names its entry.
    static void batchManager() {
        String url = create("java-manager");
        try (var client = SqsAsyncClient.builder().endpointOverride(ENDPOINT)
                .region(Region.US_EAST_1).credentialsProvider(KEY).build();
             var manager = client.batchManager()) {
            List<CompletableFuture<SendMessageResponse>> sent = new ArrayList<>();
            for (int n = 0; n < 100; n++) {
                String body = "" + n;
                sent.add(manager.sendMessage(m -> m.queueUrl(url).messageBody(body)));
            }
            check(sent.stream().map(s -> s.join().messageId()).distinct().count() == 100);
            Map<String, Message> found = new LinkedHashMap<>();
            while (found.size() < 100)
                for (Message one : manager.receiveMessage(r -> r.queueUrl(url).waitTimeSeconds(1)).join().messages())
                    found.put(one.body(), one);
            List<CompletableFuture<?>> changed = new ArrayList<>();
            for (Message one : found.values())
                changed.add(manager.changeMessageVisibility(
                    c -> c.queueUrl(url).receiptHandle(one.receiptHandle()).visibilityTimeout(60)));
            changed.forEach(CompletableFuture::join);
            List<CompletableFuture<?>> removed = new ArrayList<>();
            for (Message one : found.values())
                removed.add(manager.deleteMessage(d -> d.queueUrl(url).receiptHandle(one.receiptHandle())));
            removed.forEach(CompletableFuture::join);
        }
        check(told(url, QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES_NOT_VISIBLE).equals("0"));
        check(told(url, QueueAttributeName.APPROXIMATE_NUMBER_OF_MESSAGES).equals("0"));
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, Step> steps = new LinkedHashMap<>();
        steps.put("queues", Client::queues);
        steps.put("messages", Client::messages);
        steps.put("batches", Client::batches);
        steps.put("polls", Client::polls);
        steps.put("receipts", Client::receipts);
        steps.put("fifo", Client::fifo);
        steps.put("dead_letters", Client::deadLetters);
        steps.put("batch_manager", Client::batchManager);
        for (var step : steps.entrySet()) {
            step.getValue().run();
            System.out.println("done " + step.getKey());
        }
        System.exit(0); // threads of the clients would keep it for a while
    }
}
