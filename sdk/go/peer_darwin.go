package aegis

import (
	"net"
	"syscall"
	"unsafe"
)

// xucred is struct xucred of <sys/ucred.h>.
type xucred struct {
	version uint32
	uid     uint32
	count   int16
	groups  [16]uint32
}

const localPeerCred = 1 // LOCAL_PEERCRED of <sys/un.h>

// peerUID gives the user on the other end of a Unix socket, as the kernel knows it.
func peerUID(connection *net.UnixConn) (int, error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return 0, err
	}
	var found xucred
	var number syscall.Errno
	err = raw.Control(func(descriptor uintptr) {
		size := uint32(unsafe.Sizeof(found))
		_, _, number = syscall.Syscall6(syscall.SYS_GETSOCKOPT, descriptor, 0, localPeerCred,
			uintptr(unsafe.Pointer(&found)), uintptr(unsafe.Pointer(&size)), 0)
	})
	if err != nil {
		return 0, err
	}
	if number != 0 {
		return 0, number
	}
	return int(found.uid), nil
}
