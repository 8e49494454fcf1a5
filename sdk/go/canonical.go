package aegis

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	maxNesting = 200   // deeper values are refused before they can exhaust a stack
	maxDigits  = 4_000 // turning digits into a number is quadratic: bounds what one number costs
)

// errNotJSON is every way in which bytes can fail to be strict JSON; it never quotes them.
var errNotJSON = errors.New("the value is not strict JSON")

// Canonical gives the canonical bytes of a value (RFC 8785): those of its JSON form as encoding/json writes it.
//
// Integers keep their exact digits, however many. Raw JSON ([]byte and json.RawMessage) is read strictly: duplicate
// keys, NaN, numbers beyond a double, lone surrogates, invalid UTF-8 and trailing data are refused.
func Canonical(value any) ([]byte, error) {
	switch given := value.(type) {
	case []byte:
		return CanonicalJSON(given)
	case json.RawMessage:
		return CanonicalJSON(given)
	}
	var written bytes.Buffer
	encoder := json.NewEncoder(&written)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, invalid("a value is not JSON")
	}
	// encoding/json writes text that is not UTF-8 as the escape \ufffd, which it writes for nothing else.
	return canonicalOf(written.Bytes(), true)
}

// CanonicalJSON gives the canonical bytes of JSON text, which is read strictly.
func CanonicalJSON(data []byte) ([]byte, error) { return canonicalOf(data, false) }

func canonicalOf(data []byte, marshalled bool) ([]byte, error) {
	reader := jsonReader{data: data, marshalled: marshalled}
	value, err := reader.whole()
	if err != nil {
		return nil, invalid(err.Error())
	}
	return appendCanonical(make([]byte, 0, len(data)), value), nil
}

// Strict JSON in: objects are pairs in the order of their keys' UTF-16 code units, numbers their canonical text.

type (
	jsonNumber string
	jsonMember struct {
		key   string
		value any
	}
	jsonObject []jsonMember
)

type jsonReader struct {
	data       []byte
	at         int
	depth      int
	marshalled bool
}

func (r *jsonReader) whole() (any, error) {
	if !utf8.Valid(r.data) {
		return nil, errNotJSON
	}
	value, err := r.value()
	if err != nil {
		return nil, err
	}
	if r.space(); r.at != len(r.data) {
		return nil, errNotJSON
	}
	return value, nil
}

func (r *jsonReader) space() {
	for r.at < len(r.data) && strings.IndexByte(" \t\r\n", r.data[r.at]) >= 0 {
		r.at++
	}
}

func (r *jsonReader) next() byte {
	if r.at < len(r.data) {
		return r.data[r.at]
	}
	return 0
}

func (r *jsonReader) word(word string, value any) (any, error) {
	if !bytes.HasPrefix(r.data[r.at:], []byte(word)) {
		return nil, errNotJSON
	}
	r.at += len(word)
	return value, nil
}

func (r *jsonReader) value() (any, error) {
	if r.depth >= maxNesting {
		return nil, fmt.Errorf("a value is nested deeper than %d levels", maxNesting)
	}
	r.space()
	switch r.next() {
	case '{':
		return r.nested(func() (any, error) { return r.object() })
	case '[':
		return r.nested(func() (any, error) { return r.array() })
	case '"':
		return r.text()
	case 't':
		return r.word("true", true)
	case 'f':
		return r.word("false", false)
	case 'n':
		return r.word("null", nil)
	}
	return r.number()
}

func (r *jsonReader) nested(read func() (any, error)) (any, error) {
	r.depth++
	r.at++
	value, err := read()
	r.depth--
	return value, err
}

func (r *jsonReader) object() (any, error) {
	members := jsonObject{}
	if r.space(); r.next() == '}' {
		r.at++
		return members, nil
	}
	for {
		if r.space(); r.next() != '"' {
			return nil, errNotJSON
		}
		key, err := r.text()
		if err != nil {
			return nil, err
		}
		if r.space(); r.next() != ':' {
			return nil, errNotJSON
		}
		r.at++
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		members = append(members, jsonMember{key, value})
		if done, err := r.more('}'); err != nil {
			return nil, err
		} else if done {
			break
		}
	}
	slices.SortFunc(members, func(a, b jsonMember) int { return compareKeys(a.key, b.key) })
	for i := 1; i < len(members); i++ {
		if members[i].key == members[i-1].key {
			return nil, errors.New("an object has the same key twice")
		}
	}
	return members, nil
}

func (r *jsonReader) array() (any, error) {
	items := []any{}
	if r.space(); r.next() == ']' {
		r.at++
		return items, nil
	}
	for {
		value, err := r.value()
		if err != nil {
			return nil, err
		}
		items = append(items, value)
		if done, err := r.more(']'); err != nil || done {
			return items, err
		}
	}
}

// more reads a comma, or the end of a container.
func (r *jsonReader) more(end byte) (bool, error) {
	r.space()
	found := r.next()
	if found != ',' && found != end {
		return false, errNotJSON
	}
	r.at++
	return found == end, nil
}

func (r *jsonReader) text() (string, error) {
	r.at++
	start := r.at
	for r.at < len(r.data) && r.data[r.at] != '"' && r.data[r.at] != '\\' && r.data[r.at] >= ' ' {
		r.at++
	}
	if r.next() == '"' { // most texts
		text := string(r.data[start:r.at])
		r.at++
		return text, nil
	}
	built := append([]byte(nil), r.data[start:r.at]...)
	for r.at < len(r.data) {
		switch char := r.data[r.at]; {
		case char == '"':
			r.at++
			return string(built), nil
		case char < ' ':
			return "", errNotJSON
		case char != '\\':
			built = append(built, char)
			r.at++
		default:
			point, err := r.escape()
			if err != nil {
				return "", err
			}
			built = utf8.AppendRune(built, point)
		}
	}
	return "", errNotJSON
}

func (r *jsonReader) escape() (rune, error) {
	if r.at+1 >= len(r.data) {
		return 0, errNotJSON
	}
	letter := r.data[r.at+1]
	if at := strings.IndexByte(`"\/bfnrt`, letter); at >= 0 {
		r.at += 2
		return rune("\"\\/\b\f\n\r\t"[at]), nil
	}
	if letter != 'u' {
		return 0, errNotJSON
	}
	point, err := r.hex()
	if err != nil {
		return 0, err
	}
	if utf16.IsSurrogate(point) {
		if !bytes.HasPrefix(r.data[r.at:], []byte(`\u`)) {
			return 0, errNotJSON
		}
		second, err := r.hex()
		if err != nil {
			return 0, err
		}
		if point = utf16.DecodeRune(point, second); point == utf8.RuneError {
			return 0, errNotJSON
		}
	} else if r.marshalled && point == utf8.RuneError {
		return 0, errors.New("a text is not UTF-8")
	}
	return point, nil
}

func (r *jsonReader) hex() (rune, error) {
	if r.at+6 > len(r.data) {
		return 0, errNotJSON
	}
	var point rune
	for _, char := range r.data[r.at+2 : r.at+6] {
		at := strings.IndexByte("0123456789abcdef", char|0x20)
		if char < '0' || at < 0 {
			return 0, errNotJSON
		}
		point = point<<4 | rune(at)
	}
	r.at += 6
	return point, nil
}

func (r *jsonReader) digits() int {
	start := r.at
	for r.next() >= '0' && r.next() <= '9' {
		r.at++
	}
	return r.at - start
}

func (r *jsonReader) number() (any, error) {
	start, whole := r.at, true
	if r.next() == '-' {
		r.at++
	}
	zero := r.next() == '0'
	if n := r.digits(); n == 0 || (zero && n > 1) {
		return nil, errNotJSON
	}
	if r.next() == '.' {
		whole = false
		r.at++
		if r.digits() == 0 {
			return nil, errNotJSON
		}
	}
	if r.next() == 'e' || r.next() == 'E' {
		whole = false
		r.at++
		if r.next() == '+' || r.next() == '-' {
			r.at++
		}
		if r.digits() == 0 {
			return nil, errNotJSON
		}
	}
	text := string(r.data[start:r.at])
	if len(text) > maxDigits {
		return nil, fmt.Errorf("a number has more than %d digits", maxDigits)
	}
	float, err := strconv.ParseFloat(text, 64)
	if err != nil { // beyond a double
		return nil, errNotJSON
	}
	if !whole {
		return jsonNumber(formatDouble(float)), nil
	}
	if text == "-0" {
		text = "0"
	}
	return jsonNumber(text), nil
}

// compareKeys orders by UTF-16 code units (RFC 8785, 3.2.3).
func compareKeys(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] >= utf8.RuneSelf || b[i] >= utf8.RuneSelf {
			return slices.Compare(utf16.Encode([]rune(a)), utf16.Encode([]rune(b)))
		}
		if a[i] != b[i] {
			return int(a[i]) - int(b[i])
		}
	}
	return len(a) - len(b)
}

// formatDouble writes a double as ECMAScript does (ECMA-262, Number::toString).
func formatDouble(value float64) string {
	if value == 0 {
		return "0"
	}
	sign := ""
	if value < 0 {
		sign, value = "-", math.Abs(value)
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(value, 'e', -1, 64), "e")
	digits := strings.Replace(mantissa, ".", "", 1)
	power, _ := strconv.Atoi(exponent)
	switch n := power + 1; {
	case n > 21 || n <= -6:
		out := sign + digits[:1]
		if len(digits) > 1 {
			out += "." + digits[1:]
		}
		if power > 0 {
			return out + "e+" + strconv.Itoa(power)
		}
		return out + "e" + strconv.Itoa(power)
	case n <= 0:
		return sign + "0." + strings.Repeat("0", -n) + digits
	case n >= len(digits):
		return sign + digits + strings.Repeat("0", n-len(digits))
	default:
		return sign + digits[:n] + "." + digits[n:]
	}
}

func appendCanonical(out []byte, value any) []byte {
	switch given := value.(type) {
	case nil:
		return append(out, "null"...)
	case bool:
		return strconv.AppendBool(out, given)
	case jsonNumber:
		return append(out, given...)
	case string:
		return appendText(out, given)
	case []any:
		out = append(out, '[')
		for i, item := range given {
			if i > 0 {
				out = append(out, ',')
			}
			out = appendCanonical(out, item)
		}
		return append(out, ']')
	case jsonObject:
		out = append(out, '{')
		for i, member := range given {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(appendText(out, member.key), ':')
			out = appendCanonical(out, member.value)
		}
		return append(out, '}')
	}
	panic("aegis: a parsed value of no known kind")
}

func appendText(out []byte, text string) []byte {
	const hex = "0123456789abcdef"
	out = append(out, '"')
	for i := 0; i < len(text); i++ {
		switch char := text[i]; {
		case char == '"' || char == '\\':
			out = append(out, '\\', char)
		case char >= ' ':
			out = append(out, char)
		default:
			if at := strings.IndexByte("\b\f\n\r\t", char); at >= 0 {
				out = append(out, '\\', "bfnrt"[at])
			} else {
				out = append(out, '\\', 'u', '0', '0', hex[char>>4], hex[char&15])
			}
		}
	}
	return append(out, '"')
}

// Reading members of an object that was read strictly.

func readObject(data []byte) (jsonObject, error) {
	reader := jsonReader{data: data}
	value, err := reader.whole()
	if err != nil {
		return nil, err
	}
	object, ok := value.(jsonObject)
	if !ok {
		return nil, errNotJSON
	}
	return object, nil
}

func (o jsonObject) find(name string) (any, bool) {
	for _, member := range o {
		if member.key == name {
			return member.value, true
		}
	}
	return nil, false
}

func (o jsonObject) text(name string) (string, bool) {
	value, _ := o.find(name)
	text, ok := value.(string)
	return text, ok
}

func (o jsonObject) whole(name string) (int64, bool) {
	value, _ := o.find(name)
	number, ok := value.(jsonNumber)
	if !ok {
		return 0, false
	}
	whole, err := strconv.ParseInt(string(number), 10, 64)
	return whole, err == nil
}

func (o jsonObject) object(name string) (jsonObject, bool) {
	value, _ := o.find(name)
	object, ok := value.(jsonObject)
	return object, ok
}
