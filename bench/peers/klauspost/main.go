// A contender of `claystone bench codes --peers`: samples klauspost/reedsolomon when it is told to.
// crates/bench/src/peers/klauspost.rs talks to it and says how.
package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"

	"github.com/klauspost/reedsolomon"
	"golang.org/x/sys/unix"
)

func main() {
	// Processor time is counted by thread, and a collection in a sample would be noise.
	runtime.LockOSThread()
	debug.SetGCPercent(-1)
	cells := map[int]*cell{}
	next := 0
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		var answer string
		var err error
		switch {
		case len(fields) == 1 && fields[0] == "version":
			answer = version()
		case len(fields) == 2 && fields[0] == "sample":
			answer, err = sample(cells, fields[1])
		case len(fields) == 2 && fields[0] == "drop":
			answer, err = "ok", drop(cells, fields[1])
		default:
			var made *cell
			if made, err = newCell(fields); err == nil {
				next++
				cells[next] = made
				answer = strconv.Itoa(next)
			}
		}
		if err != nil {
			answer = "error: " + err.Error()
		}
		fmt.Println(answer)
	}
}

// A cell: stripes of chunks in one mapping, and the work on one stripe.
type cell struct {
	mapping []byte
	stripes [][][]byte
	at      int
	runs    int
	run     func(chunks [][]byte) error
}

const (
	sampleNs   = 1.5e6
	runsMax    = 1 << 20
	warmShare  = 4
	warmLeast  = 3
	coldBytes  = 640 << 20
	hugePage   = 2 << 20
	loopSteps  = 4000
	stripesMax = 1 << 16
)

// newCell reads VERB K M BYTES COLD FIELD [LOST...].
func newCell(fields []string) (*cell, error) {
	if len(fields) < 6 {
		return nil, errors.New("expected VERB K M BYTES COLD FIELD [LOST...]")
	}
	var numbers []int
	for _, field := range fields[1:] {
		number, err := strconv.Atoi(field)
		if err != nil || number < 0 {
			return nil, fmt.Errorf("%q is no number", field)
		}
		numbers = append(numbers, number)
	}
	k, m, bytes, cold, field, lost := numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5:]
	code, err := reedsolomon.New(k, m, reedsolomon.WithMaxGoroutines(1), reedsolomon.WithLeopardGF16(field == 16))
	if err != nil {
		return nil, err
	}
	made := &cell{}
	switch fields[0] {
	case "encode":
		made.run = code.Encode
	case "add":
		made.run = func(chunks [][]byte) error {
			for i, data := range chunks[:k] {
				if err := code.EncodeIdx(data, i, chunks[k:]); err != nil {
					return err
				}
			}
			return nil
		}
	case "repair":
		made.run = func(chunks [][]byte) error {
			for _, chunk := range lost {
				chunks[chunk] = chunks[chunk][:0]
			}
			return code.ReconstructData(chunks)
		}
	default:
		return nil, fmt.Errorf("%q is no verb", fields[0])
	}
	stripes := 1
	if cold != 0 {
		stripes = min((coldBytes+(k+m)*bytes-1)/((k+m)*bytes), stripesMax)
	}
	if err := made.fill(k+m, bytes, stripes); err != nil {
		return nil, err
	}
	// Parity must be right before anything is repaired.
	for _, chunks := range made.stripes {
		if err := code.Encode(chunks); err != nil {
			return nil, err
		}
	}
	// Doubles until some runs take long enough to estimate by.
	for made.runs = 1; ; made.runs *= 2 {
		spent, _, _, err := made.sample()
		if err != nil {
			return nil, err
		}
		if spent > sampleNs/8 || made.runs >= runsMax {
			made.runs = max(1, min(runsMax, int(sampleNs/spent*float64(made.runs))))
			return made, nil
		}
	}
}

// fill maps the stripes on huge pages, chunk behind chunk, with noise in them.
func (c *cell) fill(chunks, bytes, stripes int) error {
	stride := (bytes + 63) / 64 * 64
	mapping, err := unix.Mmap(-1, 0, chunks*stride*stripes+hugePage, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	c.mapping = mapping
	// Without huge pages it is slower, as everybody is then.
	_ = unix.Madvise(mapping, unix.MADV_HUGEPAGE)
	state := uint64(0x9e3779b97f4a7c15)
	for i := 0; i+8 <= len(mapping); i += 8 {
		state ^= state << 13
		state ^= state >> 7
		state ^= state << 17
		for j := range 8 {
			mapping[i+j] = byte(state >> (8 * j))
		}
	}
	at := toPage(mapping)
	for range stripes {
		var stripe [][]byte
		for range chunks {
			stripe = append(stripe, mapping[at:at+bytes:at+bytes])
			at += stride
		}
		c.stripes = append(c.stripes, stripe)
	}
	return nil
}

// do works on the stripes in turn.
func (c *cell) do(runs int) error {
	for range runs {
		if err := c.run(c.stripes[c.at]); err != nil {
			return err
		}
		c.at++
		if c.at == len(c.stripes) {
			c.at = 0
		}
	}
	return nil
}

// sample gives the time of all runs behind some that do not count, and the slower and the faster of the loops around them.
func (c *cell) sample() (spent, slower, faster float64, err error) {
	if err := c.do(max(warmLeast, (c.runs+warmShare-1)/warmShare)); err != nil {
		return 0, 0, 0, err
	}
	before := loop()
	start := threadNs()
	if err := c.do(c.runs); err != nil {
		return 0, 0, 0, err
	}
	spent = float64(threadNs() - start)
	after := loop()
	return spent, max(before, after), min(before, after), nil
}

func sample(cells map[int]*cell, number string) (string, error) {
	c, err := find(cells, number)
	if err != nil {
		return "", err
	}
	spent, slower, faster, err := c.sample()
	return fmt.Sprintf("%.3f %.0f %.0f", spent/float64(c.runs), slower, faster), err
}

func drop(cells map[int]*cell, number string) error {
	c, err := find(cells, number)
	if err != nil {
		return err
	}
	for key, value := range cells {
		if value == c {
			delete(cells, key)
		}
	}
	err = unix.Munmap(c.mapping)
	// Between cells, where it disturbs nobody.
	runtime.GC()
	return err
}

func find(cells map[int]*cell, number string) (*cell, error) {
	key, err := strconv.Atoi(number)
	if c := cells[key]; err == nil && c != nil {
		return c, nil
	}
	return nil, fmt.Errorf("there is no cell %q", number)
}

var sink uint64

// loop times four chains of additions that depend on each other, as crates/bench/src/gate.rs does.
func loop() float64 {
	start := threadNs()
	a, b, c, d := sink, sink+2, sink+3, sink+4
	for i := uint64(0); i < loopSteps; i++ {
		a += b ^ i
		b += c ^ i
		c += d ^ i
		d += a ^ i
	}
	sink = a ^ b ^ c ^ d
	return float64(threadNs() - start)
}

func threadNs() int64 {
	var time unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &time); err != nil {
		panic(err)
	}
	return time.Nano()
}

func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, module := range info.Deps {
			if module.Path == "github.com/klauspost/reedsolomon" {
				return strings.TrimPrefix(module.Version, "v")
			}
		}
	}
	return "of unknown version"
}
