/* Connections that begin without leat being asked: it has said before where they do, for requests that are for the same. Decides which are; what
 * becomes of them is `dispatcher.c`'s, and what is chosen leat's. docs/decisions/0012-born.md has the reasons. */
#pragma once
#include "cookie.h"

/* By the hash of the VIP with its port, method, target and host: as much as is sure to be of one kind, whoever asks. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 12);
	__type(key, __u64);
	__type(value, struct choice);
} choices SEC(".maps");

/* What has begun, until leat reads it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} begun SEC(".maps");

/* A request of one packet, as Ethernet has it. */
#define REQUEST_BYTES_MAX 1460
#define REQUEST_BYTES_MIN 24
/* Its first two lines have fewer bytes. */
#define LINES_BYTES_MAX 256
#define WORDS_MAX (LINES_BYTES_MAX / 8)

/* In a map and not on the stack: what is in a map may be anything, so the verifier doesn't follow each length of a line to its end. */
struct first_packet {
	struct begun begun;
	__u8 payload[2048];
	__u32 line_end;
	__u32 host_end;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct first_packet);
} first_packets SEC(".maps");

/* Only one says who has a connection that nobody has: a worker, or a standing choice. */
static __always_inline int claim(struct flow *flow)
{
	return flow->flags & FLOW_BORN && __sync_val_compare_and_swap(&flow->generation, 0, GENERATION_BORN) == 0;
}

/* Where bytes of a word are CR: the highest bit of each, sure of the first in memory's order. */
static __always_inline __u64 find_returns(__u64 word)
{
	__u64 x = word ^ 0x0d0d0d0d0d0d0d0dULL;
	return (x - 0x0101010101010101ULL) & ~x & 0x8080808080808080ULL;
}

/* The place of the first bit that is set, in bytes. Nothing if none is. */
static __always_inline __u64 first_place(__u64 bits)
{
	return ((bits & -bits) >> 7) * 0x0001020304050607ULL >> 56;
}

/* All ones if any bit is set. Without a branch: the verifier would follow both, for each word anew. */
static __always_inline __u64 any(__u64 bits)
{
	AS_IT_IS(bits);
	return -((bits | -bits) >> 63);
}

/* Finds the ends of the first line and of the next one, which must be the host's. */
VERIFIED_ONCE int find_lines(struct first_packet *first)
{
	if (!first)
		return 0;
	const __u64 *words = (const __u64 *)first->payload;
	__u64 line_end = 0, host_end = 0, has_line = 0, has_host = 0;
	for (__u32 i = 0; i < WORDS_MAX; i++) {
		__u64 returns = find_returns(words[i]);
		/* The line's own isn't the host's. */
		__u64 others = returns & ((returns - 1) | has_line);
		line_end |= (i * 8 + first_place(returns)) & any(returns) & ~has_line;
		has_line |= any(returns);
		host_end |= (i * 8 + first_place(others)) & any(others) & ~has_host;
		has_host |= any(others);
		AS_IT_IS(has_host);
		if (has_host)
			break;
	}
	first->line_end = line_end;
	first->host_end = host_end;
	AS_IT_IS(line_end);
	if (!line_end || !host_end || line_end >= LINES_BYTES_MAX)
		return 0;
	const __u8 *host = first->payload + line_end;
	return host[1] == '\n' && (host[2] | 32) == 'h' && (host[3] | 32) == 'o' && (host[4] | 32) == 's' && (host[5] | 32) == 't' && host[6] == ':';
}

/* SipHash-2-4 of where a request is sent and of its first two lines. */
VERIFIED_ONCE __u64 hash_request(const struct packet *packet, struct first_packet *first, const struct cookie_key *key)
{
	__u64 place[3];
	if (!packet || !first || !key)
		return 0;
	__builtin_memcpy(place, packet->destination, 16);
	place[2] = packet->destination_port;
	const __u64 *words = (const __u64 *)first->payload;
	SIP_START(key);
#pragma clang loop unroll(full)
	for (__u32 i = 0; i < 3; i++)
		SIP_WORD(place[i]);
	for (__u32 i = 0; i < WORDS_MAX; i++) {
		if (i >= first->host_end / 8)
			break;
		SIP_WORD(words[i]);
	}
	/* Read once more: by the loop's end the verifier knows it, which makes each end another. */
	__u64 bytes = *(volatile __u32 *)&first->host_end;
	__u64 rest = (words[bytes / 8 & (WORDS_MAX - 1)] & ((1ULL << (bytes % 8 * 8)) - 1)) | (sizeof(place) + bytes) << 56;
	SIP_WORD(rest);
	return SIP_END;
}

/* Reads a packet that is a whole request without a body, which goes on nowhere. NULL for all others: leat looks at those. */
static __noinline struct first_packet *read_request(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 zero = 0;
	const struct cookie_key *key = find_cookie_key();
	struct first_packet *first = bpf_map_lookup_elem(&first_packets, &zero);
	if (!packet || !key || !first || !packet->tcp.ack)
		return NULL;
	if (packet->tcp.syn || packet->tcp.fin || packet->tcp.rst || packet->tcp.urg || skb->gso_segs > 1)
		return NULL;
	__u64 bytes = packet->payload;
	AS_IT_IS(bytes);
	if (bytes < REQUEST_BYTES_MIN || bytes > REQUEST_BYTES_MAX ||
	    bpf_skb_load_bytes(skb, packet->l4 + packet->tcp.doff * 4, first->payload, bytes) < 0)
		return NULL;
	if (*(__u32 *)first->payload != BYTES_4('G', 'E', 'T', ' ') || *(__u32 *)(first->payload + bytes - 4) != BYTES_4('\r', '\n', '\r', '\n'))
		return NULL;
	if (!find_lines(first) || first->host_end > bytes - 4)
		return NULL;
	first->begun.content = hash_request(packet, first, key);
	first->begun.bytes = bytes;
	return first;
}

/* The highest bit of each byte that is zero. */
static __always_inline __u64 zeros(__u64 word)
{
	return ~(((word & 0x7f7f7f7f7f7f7f7fULL) + 0x7f7f7f7f7f7f7f7fULL) | word | 0x7f7f7f7f7f7f7f7fULL);
}

/* Where a word's bytes are these letters, small or large; `letter` is a small one. */
static __always_inline __u64 letters(__u64 word, __u64 letter)
{
	return zeros((word | 0x2020202020202020ULL) ^ letter * 0x0101010101010101ULL);
}

/* How far a request has been looked through. */
struct look {
	const struct first_packet *first;
	__u64 before; /* the last word */
	__u64 empty;  /* where there has been an empty line */
	__u64 bad;
};

/* Its lines end in CR LF, only the last one is empty, and none says how long content is, or how it comes ("nt-l" and "r-en" of those fields' names). */
static int look_at_word(__u32 step, struct look *look)
{
	__u64 bytes = look->first->begun.bytes, before = look->before;
	__u64 left = bytes - step * 8;
	__u64 word = ((const __u64 *)look->first->payload)[step & (sizeof(look->first->payload) / 8 - 1)];
	if (left < 8)
		word &= (1ULL << left * 8) - 1;
	__u64 last = word << 8 | before >> 56, second = word << 16 | before >> 48, third = word << 24 | before >> 40;
	__u64 feeds = zeros(word ^ 0x0a0a0a0a0a0a0a0aULL), returns = zeros(word ^ 0x0d0d0d0d0d0d0d0dULL);
	__u64 after_feeds = returns & zeros(last ^ 0x0a0a0a0a0a0a0a0aULL);
	look->bad |= feeds & ~zeros(last ^ 0x0d0d0d0d0d0d0d0dULL);
	look->bad |= (after_feeds & (after_feeds - 1)) | (after_feeds & any(look->empty));
	look->bad |= letters(word, 'l') & letters(last, '-') & letters(second, 't') & letters(third, 'n');
	look->bad |= letters(word, 'n') & letters(last, 'e') & letters(second, '-') & letters(third, 'r');
	look->empty |= after_feeds;
	look->before = word;
	return 0;
}

/* Whether a packet is one request without content, as anybody would read it: what follows may be for another server. */
VERIFIED_ONCE int is_one_request(const struct first_packet *first)
{
	if (!first)
		return 0;
	struct look look = { .first = first };
	bpf_loop((first->begun.bytes + 7) / 8, look_at_word, &look, 0);
	return !look.bad && look.empty;
}

/* The same of one that may begin a connection. */
static __noinline struct first_packet *read_first_packet(struct __sk_buff *skb, const struct packet *packet, const struct flow *flow)
{
	__be32 options[3];
	if (!packet || !flow || packet->tcp.doff < 8)
		return NULL;
	__u32 sequence = bpf_ntohl(packet->tcp.seq), acknowledged = bpf_ntohl(packet->tcp.ack_seq);
	if (sequence != flow->client_next || acknowledged != (__u32)flow->serial + 1)
		return NULL;
	if (bpf_skb_load_bytes(skb, packet->l4 + sizeof(struct tcphdr), options, sizeof(options)) < 0 || options[0] != bpf_htonl(TIMESTAMP_OPTION))
		return NULL;
	struct first_packet *first = read_request(skb, packet);
	if (!first)
		return NULL;
	struct begun *begun = &first->begun;
	begun->sequence = sequence;
	begun->acknowledged = acknowledged;
	begun->timestamp = bpf_ntohl(options[1]);
	begun->echo = bpf_ntohl(options[2]);
	begun->window = bpf_ntohs(packet->tcp.window);
	begun->serial = flow->serial;
	begun->repeats = flow->repeats;
	return first;
}

/* Whether a request of a connection that `holder` has belongs there, as far as leat has said where the like of it do. */
static __noinline int belongs_to(struct __sk_buff *skb, const struct packet *packet, __u32 holder)
{
	const struct first_packet *first = packet ? read_request(skb, packet) : NULL;
	if (!first || !is_one_request(first))
		return 0;
	__u64 content = first->begun.content;
	const struct choice *choice = bpf_map_lookup_elem(&choices, &content);
	if (!choice || choice->content != content || bpf_ktime_get_coarse_ns() >= choice->until_ns)
		return 0;
	__u32 is_among = 0;
	for (__u32 turn = 0; turn < CHOICE_TURNS; turn++)
		is_among |= turn < choice->turns && choice->holders[turn] == holder;
	return is_among;
}

/* Returns 0 when there is no room. Nobody is woken: who has the packet says something of it soon enough, and all is read before that. */
static __noinline int tell_of(struct first_packet *first)
{
	if (!first)
		return 0;
	__u64 bytes = first->begun.bytes;
	AS_IT_IS(bytes);
	if (bytes > REQUEST_BYTES_MAX)
		return 0;
	return bpf_ringbuf_output(&begun, &first->begun, sizeof(struct begun) + bytes, BPF_RB_NO_WAKEUP) == 0;
}
