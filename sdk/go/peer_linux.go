package aegis

import (
	"net"
	"syscall"
)

// peerUID gives the user on the other end of a Unix socket, as the kernel knows it (unix(7), SO_PEERCRED).
func peerUID(connection *net.UnixConn) (int, error) {
	raw, err := connection.SyscallConn()
	if err != nil {
		return 0, err
	}
	uid := 0
	var failed error
	err = raw.Control(func(descriptor uintptr) {
		var credentials *syscall.Ucred
		if credentials, failed = syscall.GetsockoptUcred(int(descriptor), syscall.SOL_SOCKET, syscall.SO_PEERCRED); failed == nil {
			uid = int(credentials.Uid)
		}
	})
	if err != nil {
		return 0, err
	}
	return uid, failed
}
