package main

import "unsafe"

// toPage is the offset of the first huge page in a mapping.
func toPage(mapping []byte) int {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(mapping)))
	return int((hugePage - start%hugePage) % hugePage)
}
