// SPDX-License-Identifier: Apache-2.0

// A member of a cluster by hashicorp/memberlist, set up as a MetalLB speaker sets it up: for tests that ours and theirs
// share one cluster. Usage: memberlist NAME ADDRESS KEY, the key in hexadecimal, empty for none. Reads commands from
// standard input, answers each with one line; prints "event N NAME" (0 joined, 1 left or died, 2 updated) in between.
//
//	join ADDRESS…   joined N
//	members         members NAME…
//	meta NAME       meta HEX
//	leave           left, and ends
package main

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: memberlist NAME ADDRESS KEY")
		os.Exit(2)
	}
	key, err := hex.DecodeString(os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	events := make(chan memberlist.NodeEvent, 1024)
	config := memberlist.DefaultLANConfig()
	config.Name = os.Args[1]
	config.BindAddr = os.Args[2]
	config.BindPort = 7946
	config.AdvertisePort = 7946
	config.SecretKey = key
	config.LogOutput = io.Discard
	config.Events = &memberlist.ChannelEventDelegate{Ch: events}
	list, err := memberlist.Create(config)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	go func() {
		for event := range events {
			fmt.Printf("event %d %s\n", event.Event, event.Node.Name)
		}
	}()
	fmt.Println("ready")
	input := bufio.NewScanner(os.Stdin)
	for input.Scan() {
		words := strings.Fields(input.Text())
		if len(words) == 0 {
			continue
		}
		switch words[0] {
		case "join":
			count, _ := list.Join(words[1:])
			fmt.Printf("joined %d\n", count)
		case "members":
			names := []string{"members"}
			for _, node := range list.Members() {
				names = append(names, node.Name)
			}
			fmt.Println(strings.Join(names, " "))
		case "meta":
			for _, node := range list.Members() {
				if node.Name == words[1] {
					fmt.Printf("meta %x\n", node.Meta)
				}
			}
		case "leave":
			_ = list.Leave(time.Second)
			_ = list.Shutdown()
			fmt.Println("left")
			return
		}
	}
}
