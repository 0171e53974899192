// What a program with Amazon's SDK for Go (v2) meets at ENDPOINT.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
)

type anyKey struct{}

func (anyKey) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{AccessKeyID: "any", SecretAccessKey: "any"}, nil
}

var (
	ctx    = context.Background()
	client = sqs.New(sqs.Options{
		BaseEndpoint:     aws.String(os.Getenv("ENDPOINT")),
		Region:           "us-east-1",
		Credentials:      anyKey{},
		RetryMaxAttempts: 1,
	})
)

func check(holds bool, what ...any) {
	if !holds {
		panic(fmt.Sprint(what...))
	}
}

func must[T any](answer T, err error) T {
	if err != nil {
		panic(err)
	}
	return answer
}

func refused[E error](err error) {
	var kind E
	check(errors.As(err, &kind), "expected another error than ", err)
}

func create(name string, attributes map[string]string) *string {
	asked := &sqs.CreateQueueInput{QueueName: &name, Attributes: attributes}
	return must(client.CreateQueue(ctx, asked)).QueueUrl
}

func send(url *string, body string) *sqs.SendMessageOutput {
	return must(client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: &body}))
}

func receive(url *string, wait int32) []types.Message {
	return must(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
		QueueUrl: url, WaitTimeSeconds: wait, MaxNumberOfMessages: 10,
		MessageAttributeNames:       []string{"All"},
		MessageSystemAttributeNames: []types.MessageSystemAttributeName{"All"},
	})).Messages
}

func one(url *string) types.Message {
	found := must(client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: url, WaitTimeSeconds: 20}))
	check(len(found.Messages) == 1, len(found.Messages), " messages")
	return found.Messages[0]
}

func remove(url, receipt *string) error {
	_, err := client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: url, ReceiptHandle: receipt})
	return err
}

func hide(url, receipt *string, seconds int32) {
	must(client.ChangeMessageVisibility(ctx, &sqs.ChangeMessageVisibilityInput{
		QueueUrl: url, ReceiptHandle: receipt, VisibilityTimeout: seconds,
	}))
}

func told(url *string, name string) string {
	return must(client.GetQueueAttributes(ctx, &sqs.GetQueueAttributesInput{
		QueueUrl: url, AttributeNames: []types.QueueAttributeName{types.QueueAttributeName(name)},
	})).Attributes[name]
}

func queues() {
	url := create("go-queues", map[string]string{"VisibilityTimeout": "5"})
	check(*create("go-queues", map[string]string{"VisibilityTimeout": "5"}) == *url)
	_, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{
		QueueName: aws.String("go-queues"), Attributes: map[string]string{"VisibilityTimeout": "6"},
	})
	refused[*types.QueueNameExists](err)
	_, err = client.GetQueueUrl(ctx, &sqs.GetQueueUrlInput{QueueName: aws.String("go-missing")})
	refused[*types.QueueDoesNotExist](err)
	for n := range 3 {
		create("go-list-"+strconv.Itoa(n), nil)
	}
	asked := &sqs.ListQueuesInput{QueueNamePrefix: aws.String("go-list-"), MaxResults: aws.Int32(2)}
	listed := 0
	for pages := sqs.NewListQueuesPaginator(client, asked); pages.HasMorePages(); {
		listed += len(must(pages.NextPage(ctx)).QueueUrls)
	}
	check(listed == 3, listed, " queues")
	must(client.TagQueue(ctx, &sqs.TagQueueInput{QueueUrl: url, Tags: map[string]string{"team": "blue"}}))
	check(must(client.ListQueueTags(ctx, &sqs.ListQueueTagsInput{QueueUrl: url})).Tags["team"] == "blue")
	must(client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{
		QueueUrl: url, Attributes: map[string]string{"DelaySeconds": "1"},
	}))
	check(told(url, "DelaySeconds") == "1")
	must(client.DeleteQueue(ctx, &sqs.DeleteQueueInput{QueueUrl: url}))
	_, err = client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("x")})
	refused[*types.QueueDoesNotExist](err)
}

func messages() {
	url, body := create("go-messages", nil), "one 🐌\r\ntwo"
	must(client.SendMessage(ctx, &sqs.SendMessageInput{
		QueueUrl: url, MessageBody: &body,
		MessageAttributes: map[string]types.MessageAttributeValue{
			"text":   {DataType: aws.String("String"), StringValue: aws.String("grün 🐌")},
			"number": {DataType: aws.String("Number"), StringValue: aws.String("-1.50")},
			"bytes":  {DataType: aws.String("Binary"), BinaryValue: []byte{0, 255, 10}},
		},
	}))
	found := receive(url, 20)[0]
	check(*found.Body == body, *found.Body)
	check(found.Attributes["ApproximateReceiveCount"] == "1")
	check(*found.MessageAttributes["text"].StringValue == "grün 🐌")
	check(*found.MessageAttributes["number"].StringValue == "-1.50")
	check(bytes.Equal(found.MessageAttributes["bytes"].BinaryValue, []byte{0, 255, 10}))
	check(remove(url, found.ReceiptHandle) == nil && remove(url, found.ReceiptHandle) == nil)
	_, err := client.SendMessage(ctx, &sqs.SendMessageInput{QueueUrl: url, MessageBody: aws.String("\x01")})
	refused[*types.InvalidMessageContents](err)
}

func batches() {
	url := create("go-batches", nil)
	var entries []types.SendMessageBatchRequestEntry
	for n := range 10 {
		entry := types.SendMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(n)), MessageBody: aws.String("x")}
		if n == 3 {
			entry.DelaySeconds = 901
		}
		entries = append(entries, entry)
	}
	sent := must(client.SendMessageBatch(ctx, &sqs.SendMessageBatchInput{QueueUrl: url, Entries: entries}))
	check(len(sent.Successful) == 9 && *sent.Failed[0].Id == "3" && sent.Failed[0].SenderFault)
	for left := 9; left > 0; {
		var ended []types.DeleteMessageBatchRequestEntry
		for n, found := range receive(url, 20) {
			entry := types.DeleteMessageBatchRequestEntry{Id: aws.String(strconv.Itoa(n)), ReceiptHandle: found.ReceiptHandle}
			ended = append(ended, entry)
		}
		removed := must(client.DeleteMessageBatch(ctx, &sqs.DeleteMessageBatchInput{QueueUrl: url, Entries: ended}))
		check(len(removed.Successful) == len(ended))
		left -= len(ended)
	}
	must(client.PurgeQueue(ctx, &sqs.PurgeQueueInput{QueueUrl: url}))
}

func polls() {
	url := create("go-polls", nil)
	began := time.Now()
	check(len(receive(url, 1)) == 0 && time.Since(began) > 800*time.Millisecond)
	came := make(chan types.Message)
	go func() { came <- one(url) }()
	send(url, "came")
	check(*(<-came).Body == "came")
}

func receipts() {
	url := create("go-receipts", nil)
	send(url, "x")
	first := one(url)
	hide(url, first.ReceiptHandle, 0)
	second := one(url)
	check(*second.MessageId == *first.MessageId)
	check(remove(url, first.ReceiptHandle) == nil) // of a claim that is over: another's stays
	hide(url, second.ReceiptHandle, 0)
	check(*one(url).MessageId == *first.MessageId)
	refused[*types.ReceiptHandleIsInvalid](remove(url, aws.String("nonsense")))
}

func fifo() {
	url := create("go-steps.fifo", map[string]string{"FifoQueue": "true"})
	put := func(body, group, id string) string {
		return *must(client.SendMessage(ctx, &sqs.SendMessageInput{
			QueueUrl: url, MessageBody: &body, MessageGroupId: &group, MessageDeduplicationId: &id,
		})).MessageId
	}
	check(put("a1", "a", "1") == put("a1 again", "a", "1"))
	put("a2", "a", "2")
	put("b1", "b", "3")
	a1, b1 := one(url), one(url) // the group of a1 is closed
	check(*a1.Body == "a1" && *b1.Body == "b1", *a1.Body, *b1.Body)
	check(remove(url, a1.ReceiptHandle) == nil)
	check(*one(url).Body == "a2")
}

func deadLetters() {
	dead := create("go-dead", nil)
	policy := fmt.Sprintf(`{"deadLetterTargetArn": %q, "maxReceiveCount": "1"}`, told(dead, "QueueArn"))
	url := create("go-alive", map[string]string{"RedrivePolicy": policy, "VisibilityTimeout": "0"})
	send(url, "bad")
	one(url)
	for len(receive(url, 1)) > 0 {
	}
	found := one(dead)
	check(*found.Body == "bad")
	hide(dead, found.ReceiptHandle, 0)
	must(client.StartMessageMoveTask(ctx, &sqs.StartMessageMoveTaskInput{SourceArn: aws.String(told(dead, "QueueArn"))}))
	check(*one(url).Body == "bad")
}

func main() {
	for _, step := range []struct {
		name string
		run  func()
	}{
		{"queues", queues}, {"messages", messages}, {"batches", batches}, {"polls", polls},
		{"receipts", receipts}, {"fifo", fifo}, {"dead_letters", deadLetters},
	} {
		step.run()
		fmt.Println("done", step.name)
	}
}
