/* Connections without state: what a SYN said is put into the answer, comes back in what the client sends next, and is checked with a key that the
 * servers of a cluster share. Decides what a cookie is; who answers and who believes it is elsewhere. docs/decisions/0012-born.md has the reasons.
 *
 * The client's options are in the low bits of our timestamp, whose other bits are the time; our initial sequence number is a hash of both and of
 * who talks to whom. So a packet that makes a connection must have a timestamp. */
#pragma once
#include "packet.h"

/* Both halves of a SipHash key. */
struct cookie_key {
	__u64 first;
	__u64 second;
};

/* What a client asked for in its SYN. */
struct syn_options {
	__u32 timestamp;
	__u32 echo;
	__u16 mss;
	__u8 window_scale; /* NO_WINDOW_SCALE: the option was left out */
	__u8 sack;
	__u8 has_timestamp;
};

/* What a cookie that was found right says. */
struct handshake {
	__u64 serial; /* which connection of all */
	struct syn_options options;
	__u32 age_ms; /* by the clock of who answered the SYN */
	__u32 made;   /* by the same: when the cookie was */
	__u8 scale;   /* of the windows that the client is told */
};

#define NO_WINDOW_SCALE 15
#define WINDOW_SCALE_MAX 14
#define OPTIONS_BITS 7
#define OPTIONS_MASK ((1 << OPTIONS_BITS) - 1)
#define TCP_OPTIONS_MAX 40

/* Flows that began elsewhere count on from numbers without this bit. */
#define BORN_SERIAL (1ULL << 63)

/* Ours, for the windows that we announce: up to 8 MB. */
#define OWN_WINDOW_SCALE 7

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cookie_key);
} cookie_keys SEC(".maps");

static __always_inline __u32 now_ms(void)
{
	return bpf_ktime_get_coarse_ns() / 1000000;
}

/* SipHash-2-4 (Aumasson and Bernstein, 2012). */
#define ROTATE(x, bits) (((x) << (bits)) | ((x) >> (64 - (bits))))
#define SIP_ROUND                                                                                        \
	do {                                                                                             \
		a += b; b = ROTATE(b, 13); b ^= a; a = ROTATE(a, 32);                                    \
		c += d; d = ROTATE(d, 16); d ^= c;                                                       \
		a += d; d = ROTATE(d, 21); d ^= a;                                                       \
		c += b; b = ROTATE(b, 17); b ^= c; c = ROTATE(c, 32);                                    \
	} while (0)

#define SIP_START(key)                                                                                   \
	__u64 a = (key)->first ^ 0x736f6d6570736575ULL, b = (key)->second ^ 0x646f72616e646f6dULL;       \
	__u64 c = (key)->first ^ 0x6c7967656e657261ULL, d = (key)->second ^ 0x7465646279746573ULL
#define SIP_WORD(word)                                                                                   \
	do {                                                                                             \
		d ^= (word);                                                                             \
		SIP_ROUND;                                                                               \
		SIP_ROUND;                                                                               \
		a ^= (word);                                                                             \
	} while (0)
/* The last word, with the length in its top byte, has been before. */
#define SIP_END                                                                                          \
	({                                                                                               \
		c ^= 0xff;                                                                               \
		SIP_ROUND;                                                                               \
		SIP_ROUND;                                                                               \
		SIP_ROUND;                                                                               \
		SIP_ROUND;                                                                               \
		a ^ b ^ c ^ d;                                                                           \
	})

/* Of a connection: `packet` comes from its client. */
VERIFIED_ONCE __u64 cookie_hash(const struct packet *packet, __u32 client_isn, __u32 timestamp, const struct cookie_key *key)
{
	__u64 words[6];
	if (!packet || !key)
		return 0;
	__builtin_memcpy(words, packet->source, 16);
	__builtin_memcpy(words + 2, packet->destination, 16);
	words[4] = (__u64)packet->source_port << 48 | (__u64)packet->destination_port << 32 | client_isn;
	words[5] = timestamp | 44ULL << 56;
	SIP_START(key);
#pragma clang loop unroll(full)
	for (int i = 0; i < 6; i++)
		SIP_WORD(words[i]);
	return SIP_END;
}

/* Four sizes of segment in two bits: the largest that isn't above what the client said. */
static __always_inline __u16 mss_of(__u32 place, __u32 is_ipv4)
{
	switch (place) {
	case 0:
		return is_ipv4 ? 536 : 1220;
	case 1:
		return is_ipv4 ? 1300 : 1360;
	case 2:
		return is_ipv4 ? 1440 : 1420;
	default:
		return is_ipv4 ? 1460 : 1440;
	}
}

static __always_inline __u32 mss_place(__u16 mss, __u32 is_ipv4)
{
	__u32 place = 0;
	if (mss >= mss_of(1, is_ipv4))
		place = 1;
	if (mss >= mss_of(2, is_ipv4))
		place = 2;
	if (mss >= mss_of(3, is_ipv4))
		place = 3;
	return place;
}

static __always_inline __u32 pack_options(const struct syn_options *options, __u32 is_ipv4)
{
	return options->window_scale | mss_place(options->mss, is_ipv4) << 4 | (options->sack ? 1 << 6 : 0);
}

static __always_inline void unpack_options(__u32 bits, __u32 is_ipv4, struct syn_options *options)
{
	options->window_scale = bits & 15;
	options->mss = mss_of(bits >> 4 & 3, is_ipv4);
	options->sack = bits >> 6 & 1;
}

/* In a map and not on the stack: what is in a map may be anything, so the verifier doesn't follow each way of laying out options to its end. */
struct option_reader {
	__u8 bytes[64];
	__u32 at;
	struct syn_options options;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct option_reader);
} option_readers SEC(".maps");

static __always_inline __u32 read_number(const __u8 *bytes, __u32 at)
{
	return (__u32)bytes[at & 63] << 24 | bytes[(at + 1) & 63] << 16 | bytes[(at + 2) & 63] << 8 | bytes[(at + 3) & 63];
}

/* Returns 0 behind the last option. What follows the options is zero. */
static __always_inline int read_option(struct option_reader *reader)
{
	struct syn_options *options = &reader->options;
	__u32 at = reader->at & 63;
	__u8 kind = reader->bytes[at], size = reader->bytes[(at + 1) & 63], value = reader->bytes[(at + 2) & 63];
	if (kind == 1) {
		reader->at = at + 1;
		return 1;
	}
	if (kind == 0 || size < 2)
		return 0;
	reader->at = at + size;
	if (kind == 2 && size == 4)
		options->mss = value << 8 | reader->bytes[(at + 3) & 63];
	else if (kind == 3 && size == 3)
		options->window_scale = value > WINDOW_SCALE_MAX ? WINDOW_SCALE_MAX : value;
	else if (kind == 4 && size == 2)
		options->sack = 1;
	else if (kind == 8 && size == 10) {
		options->timestamp = read_number(reader->bytes, at + 2);
		options->echo = read_number(reader->bytes, at + 6);
		options->has_timestamp = 1;
	}
	return at + size < TCP_OPTIONS_MAX;
}

/* A step of `bpf_loop`: ends it by 1. In a loop of the compiler's, the verifier of kernels before Linux 6.4 follows each way through each option to its end. */
static int read_next_option(__u32 step, struct option_reader **reader)
{
	return !read_option(*reader);
}

VERIFIED_ONCE int read_options(struct __sk_buff *skb, const struct packet *packet, struct syn_options *options)
{
	__u32 zero = 0;
	struct option_reader *reader = bpf_map_lookup_elem(&option_readers, &zero);
	if (!packet || !options || !reader)
		return 0;
	__builtin_memset(reader, 0, sizeof(*reader));
	reader->options.window_scale = NO_WINDOW_SCALE;
	reader->options.mss = packet->is_ipv4 ? 536 : 1220;
	__u64 length = packet->tcp.doff * 4ULL - sizeof(struct tcphdr);
	if (length < 1 || length > TCP_OPTIONS_MAX)
		return 0;
	if (bpf_skb_load_bytes(skb, packet->l4 + sizeof(struct tcphdr), reader->bytes, WITHIN(length, sizeof(reader->bytes))) < 0)
		return 0;
	bpf_loop(TCP_OPTIONS_MAX, read_next_option, &reader, 0);
	*options = reader->options;
	return 1;
}

static __always_inline const struct cookie_key *find_cookie_key(void)
{
	__u32 zero = 0;
	const struct cookie_key *key = bpf_map_lookup_elem(&cookie_keys, &zero);
	/* Nobody has said yet which it is. */
	return key && (key->first || key->second) ? key : NULL;
}

/* Whether a packet is the first that a client sends on a connection whose SYN was answered by a cookie. */
VERIFIED_ONCE int check_cookie(struct __sk_buff *skb, const struct packet *packet, struct handshake *handshake)
{
	const struct cookie_key *key = find_cookie_key();
	if (!packet || !handshake || !key || !packet->tcp.ack || packet->tcp.syn || packet->tcp.rst)
		return 0;
	if (!read_options(skb, packet, &handshake->options) || !handshake->options.has_timestamp)
		return 0;
	__u32 echo = handshake->options.echo;
	__u64 hash = cookie_hash(packet, bpf_ntohl(packet->tcp.seq) - 1, echo, key);
	if ((__u32)hash != bpf_ntohl(packet->tcp.ack_seq) - 1)
		return 0;
	handshake->serial = hash | BORN_SERIAL;
	handshake->age_ms = now_ms() - (echo & ~OPTIONS_MASK);
	handshake->made = echo;
	handshake->scale = OWN_WINDOW_SCALE;
	unpack_options(echo & OPTIONS_MASK, packet->is_ipv4, &handshake->options);
	return 1;
}
