package aegis

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The log, as far as a holder of one receipt checks it: the leaf, its signature, its place in the tree, the checkpoint.

const (
	hashBytes     = 32
	maxGroup      = 65_536 // bounds the path of a receipt, and so what a forged one can make us hash
	maxNoteBytes  = 65_536 // a note is parsed before anything about it is trusted
	maxSignatures = 16     // as above: each may cost one verification
)

// LogInvalid is a defect of a receipt, a proof or a checkpoint; Kind is one of edited, missing_signature,
// malformed_member, proof_invalid and checkpoint_invalid.
type LogInvalid struct{ Kind, Detail string }

func (e *LogInvalid) Error() string { return "aegis: " + e.Kind + ": " + e.Detail }

var (
	errProof = &LogInvalid{"proof_invalid", "the path does not lead from the leaf to the root"}
	errNote  = &LogInvalid{"checkpoint_invalid", "it is not a signed note of this log"}
)

// LeafHash gives the hash of a leaf: SHA-256(0x00 || body).
func LeafHash(body []byte) []byte {
	sum := sha256.Sum256(append([]byte{0}, body...))
	return sum[:]
}

func nodeHash(left, right []byte) []byte {
	sum := sha256.Sum256(append(append([]byte{1}, left...), right...))
	return sum[:]
}

// CheckReceipt guarantees that the key signed everything of a receipt but its place in the chain, and gives its leaf
// hash. Whether that key may sign for it is the caller's question. The error is a *LogInvalid.
func CheckReceipt(receipt []byte, public ed25519.PublicKey) ([]byte, error) {
	object, err := readObject(receipt)
	if err != nil {
		return nil, &LogInvalid{"not_canonical", "it is not a JSON object"}
	}
	leaf := LeafHash(appendCanonical(nil, object))
	signed := jsonObject{}
	for _, member := range object {
		if member.key != "prev" && member.key != "sig" {
			signed = append(signed, member)
		}
	}
	message, value, err := readSignature(object, appendCanonical(nil, signed))
	if err != nil {
		return leaf, err
	}
	if !ed25519.Verify(public, message, value) {
		return leaf, &LogInvalid{"edited", "its signature does not hold"}
	}
	return leaf, nil
}

func malformed(member string) error { return &LogInvalid{"malformed_member", "`" + member + "`"} }

// readSignature gives the message and the signature that the member `sig` claims.
func readSignature(receipt jsonObject, data []byte) ([]byte, []byte, error) {
	found, present := receipt.find("sig")
	if !present || found == nil {
		return nil, nil, &LogInvalid{"missing_signature", "it has none"}
	}
	sig, ok := found.(jsonObject)
	algorithm, _ := sig.text("alg")
	alone := algorithm == "Ed25519" && len(sig) == 3
	if !ok || (!alone && (algorithm != "Ed25519-batch" || len(sig) != 6)) {
		return nil, nil, malformed("sig")
	}
	if kid, _ := sig.text("kid"); kid == "" {
		return nil, nil, malformed("sig.kid")
	}
	value, ok := decodeExactly(sig, "value", ed25519.SignatureSize)
	if !ok {
		return nil, nil, malformed("sig.value")
	}
	if alone {
		return append([]byte("aegis/receipt/v1\x00"), data...), value, nil
	}
	index, hasIndex := sig.whole("index")
	size, hasSize := sig.whole("size")
	found, _ = sig.find("path")
	items, hasPath := found.([]any)
	if !hasIndex || !hasSize || !hasPath || size < 2 || size > maxGroup {
		return nil, nil, malformed("sig.path")
	}
	var path [][]byte
	for _, item := range items {
		node, ok := decodeExactly(jsonObject{{"node", item}}, "node", hashBytes)
		if !ok {
			return nil, nil, malformed("sig.path")
		}
		path = append(path, node)
	}
	root, err := rootFromInclusion(LeafHash(data), index, size, path)
	if err != nil {
		return nil, nil, err
	}
	message := binary.BigEndian.AppendUint64([]byte("aegis/receipt-batch/v1\x00"), uint64(size))
	return append(message, root...), value, nil
}

var base64Strict = base64.StdEncoding.Strict()

func decodeExactly(object jsonObject, name string, length int) ([]byte, bool) {
	text, ok := object.text(name)
	data, err := base64Strict.DecodeString(text)
	return data, ok && err == nil && len(data) == length && !strings.ContainsAny(text, "\r\n")
}

// rootFromInclusion gives the root that a path leads to (RFC 9162, 2.1.3.2).
func rootFromInclusion(leaf []byte, index, size int64, path [][]byte) ([]byte, error) {
	// (1) The leaf must be inside the tree.
	if index < 0 || index >= size {
		return nil, errProof
	}
	// (2) fn is the leaf's index, sn the index of the last leaf. (3) Start from the leaf.
	fn, sn, root := index, size-1, leaf
	// (4) Walk up: a sibling stands left of a right child and of the last node, else right.
	for _, sibling := range path {
		if sn == 0 || len(sibling) != hashBytes {
			return nil, errProof
		}
		if fn&1 == 1 || fn == sn {
			root = nodeHash(sibling, root)
			for fn&1 == 0 && fn != 0 {
				fn, sn = fn>>1, sn>>1
			}
		} else {
			root = nodeHash(root, sibling)
		}
		fn, sn = fn>>1, sn>>1
	}
	// (5) The walk must have ended at the root.
	if sn != 0 {
		return nil, errProof
	}
	return root, nil
}

// VerifyInclusion guarantees that a leaf hash is leaf index of the tree of size leaves with that root.
func VerifyInclusion(leaf []byte, index, size int64, path [][]byte, root []byte) error {
	found, err := rootFromInclusion(leaf, index, size, path)
	if err != nil {
		return err
	}
	if !bytes.Equal(found, root) {
		return errProof
	}
	return nil
}

// VerifyConsistency guarantees that the tree of second leaves begins with the tree of first leaves (RFC 9162, 2.1.4.2).
func VerifyConsistency(first, second int64, firstRoot, secondRoot []byte, path [][]byte) error {
	if first < 0 || first > second {
		return errProof
	}
	if first == 0 || first == second {
		wanted := sha256.Sum256(nil)
		if first == second {
			copy(wanted[:], secondRoot)
		}
		if len(path) != 0 || !bytes.Equal(firstRoot, wanted[:]) {
			return errProof
		}
		return nil
	}
	// (1) A path is needed. (2) Where the earlier tree is complete, its root is the first node.
	if len(path) == 0 {
		return errProof
	}
	nodes := path
	if first&(first-1) == 0 {
		nodes = append([][]byte{firstRoot}, path...)
	}
	// (3) fn and sn are the last leaves of both trees. (4) Climb to the first node that is not a right child.
	fn, sn := first-1, second-1
	for fn&1 == 1 {
		fn, sn = fn>>1, sn>>1
	}
	// (5) Both roots start from the first node. (6) Walk up in both trees at once.
	fr, sr := nodes[0], nodes[0]
	for _, node := range nodes[1:] {
		if sn == 0 || len(node) != hashBytes {
			return errProof
		}
		if fn&1 == 1 || fn == sn {
			fr, sr = nodeHash(node, fr), nodeHash(node, sr)
			for fn&1 == 0 && fn != 0 {
				fn, sn = fn>>1, sn>>1
			}
		} else {
			sr = nodeHash(sr, node)
		}
		fn, sn = fn>>1, sn>>1
	}
	// (7) Both must have arrived.
	if sn != 0 || !bytes.Equal(fr, firstRoot) || !bytes.Equal(sr, secondRoot) {
		return errProof
	}
	return nil
}

// Checkpoint is what a log commits to: that its first Size leaves have the root Root.
type Checkpoint struct {
	Origin string
	Size   int64
	Root   []byte
}

// OpenCheckpoint gives what a signed note says, where the log's key signed it (C2SP tlog-checkpoint, signed-note).
func OpenCheckpoint(note []byte, public ed25519.PublicKey) (*Checkpoint, error) {
	// (1) Bounded, UTF-8, and no control characters but newlines.
	if len(note) > maxNoteBytes || !utf8.Valid(note) ||
		bytes.ContainsFunc(note, func(char rune) bool { return char < ' ' && char != '\n' }) {
		return nil, errNote
	}
	// (2) Text and signatures, divided by the last empty line.
	divider := bytes.LastIndex(note, []byte("\n\n"))
	if divider < 0 || !bytes.HasSuffix(note[divider+2:], []byte("\n")) {
		return nil, errNote
	}
	text, block := note[:divider+1], string(note[divider+2:len(note)-1])
	lines := strings.Split(string(note[:divider]), "\n")
	if len(lines) != 3 || !isName(lines[0]) {
		return nil, errNote
	}
	// (3) Origin, size in decimal without leading zeros, root in base64.
	size, err := strconv.ParseInt(lines[1], 10, 64)
	if err != nil || size < 0 || strconv.FormatInt(size, 10) != lines[1] {
		return nil, errNote
	}
	root, ok := decodeExactly(jsonObject{{"root", lines[2]}}, "root", hashBytes)
	if !ok {
		return nil, errNote
	}
	// (4) Signature lines: name, key id and signature; those of other keys are ignored, a wrong one of this key is not.
	signatures := strings.Split(block, "\n")
	if len(signatures) > maxSignatures {
		return nil, errNote
	}
	hint := sha256.Sum256(append(append([]byte(lines[0]), '\n', 1), public...))
	held := false
	for _, line := range signatures {
		name, encoded, divided := strings.Cut(strings.TrimPrefix(line, "— "), " ")
		data, ok := decodeExactly(jsonObject{{"sig", encoded}}, "sig", 4+ed25519.SignatureSize)
		if !strings.HasPrefix(line, "— ") || !divided || !isName(name) || !ok {
			return nil, errNote
		}
		if name != lines[0] || !bytes.Equal(data[:4], hint[:4]) {
			continue
		}
		if !ed25519.Verify(public, text, data[4:]) {
			return nil, errNote
		}
		held = true
	}
	if !held {
		return nil, errNote
	}
	return &Checkpoint{Origin: lines[0], Size: size, Root: root}, nil
}

func isName(name string) bool {
	return name != "" && !strings.Contains(name, "+") && !strings.ContainsFunc(name, unicode.IsSpace)
}

// AsLogInvalid gives the defect that an error names, if it names one.
func AsLogInvalid(err error) (*LogInvalid, bool) {
	var found *LogInvalid
	return found, errors.As(err, &found)
}
