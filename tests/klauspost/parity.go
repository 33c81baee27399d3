// Parity as klauspost/reedsolomon makes it: `parity K M BYTES` encodes K chunks of noise from seed 1 (a linear congruence
// with Knuth's constants, its top byte each time) and writes the M parity chunks to standard output.
package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/klauspost/reedsolomon"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	if len(arguments) != 3 {
		return fmt.Errorf("%d arguments instead of K, M and BYTES", len(arguments))
	}
	var numbers [3]int
	for i, argument := range arguments {
		number, err := strconv.Atoi(argument)
		if err != nil {
			return err
		}
		numbers[i] = number
	}
	k, m, bytes := numbers[0], numbers[1], numbers[2]
	code, err := reedsolomon.New(k, m)
	if err != nil {
		return err
	}
	chunks := make([][]byte, k+m)
	state := uint64(1)
	for i := range chunks {
		chunks[i] = make([]byte, bytes)
		for at := 0; i < k && at < bytes; at++ {
			state = state*6364136223846793005 + 1442695040888963407
			chunks[i][at] = byte(state >> 56)
		}
	}
	if err := code.Encode(chunks); err != nil {
		return err
	}
	for _, chunk := range chunks[k:] {
		if _, err := os.Stdout.Write(chunk); err != nil {
			return err
		}
	}
	return nil
}
