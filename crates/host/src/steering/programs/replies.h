/* At a node whose server isn't leat, and where connections may be asked for between two requests: notes what was said last on each, by which leat knows whether the
 * server has answered all that it was asked, and keeps back what it says on those that another server has been given. docs/decisions/0033-transplants.md has the
 * reasons. */
#pragma once
#include "cookie.h"

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1 << 13);
	__type(key, struct flow_key);
	__type(value, struct reply);
} replies SEC(".maps");

/* Too much for the stack: what nothing has been said on. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct reply);
} no_reply SEC(".maps");

/* Whether there is anything to note. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u32);
} watching SEC(".maps");

static __always_inline int is_watching(void)
{
	__u32 zero = 0;
	const __u32 *value = bpf_map_lookup_elem(&watching, &zero);
	return value && *value;
}

/* Whether what a client says belongs to its last request, and isn't another one: that may have content, and this doesn't begin as requests do. */
static __always_inline int is_content(struct __sk_buff *skb, const struct packet *packet, __u32 payload_at, const struct reply *reply)
{
	/* A packet may have fewer. */
	__u8 first[4] = {'A', 'A', 'A', 'A'};
	__u64 bytes = packet->payload > sizeof(first) ? sizeof(first) : packet->payload;
	__u32 method = *(const __u32 *)reply->request;
	if (method == BYTES_4('G', 'E', 'T', ' ') || method == BYTES_4('H', 'E', 'A', 'D'))
		return 0;
	bpf_skb_load_bytes(skb, payload_at, first, WITHIN(bytes, sizeof(first)));
	return first[0] - 'A' > 25U || first[1] - 'A' > 25U || first[2] - 'A' > 25U;
}

/* The request's first four bytes, of which a packet may have fewer. What isn't known of them is 0. */
static __always_inline void note_method(struct __sk_buff *skb, const struct packet *packet, __u32 payload_at, struct reply *reply)
{
	__u32 known = *(__u32 *)reply->request, more = 0;
	__u64 bytes = packet->payload > sizeof(more) ? sizeof(more) : packet->payload;
	__u32 bits = known > 0xffffff ? 32 : known > 0xffff ? 24 : known > 0xff ? 16 : known ? 8 : 0;
	/* The first bytes are the lowest. */
	if (bits < 32 && bpf_skb_load_bytes(skb, payload_at, &more, WITHIN(bytes, sizeof(more))) == 0)
		*(__u32 *)reply->request = known | more << bits;
}

/* What a client says on a connection that is there, or begins: `packet` has come from it. */
static __noinline void note_request(struct __sk_buff *skb, const struct packet *packet, int begins)
{
	struct flow_key key;
	__u32 zero = 0;
	if (!packet)
		return;
	set_key(&key, packet);
	__u32 end = bpf_ntohl(packet->tcp.seq) + packet->payload, acknowledged = bpf_ntohl(packet->tcp.ack_seq);
	__u32 payload_at = packet->l4 + packet->tcp.doff * 4;
	struct reply *reply = bpf_map_lookup_elem(&replies, &key);
	if (packet->tcp.rst) {
		/* Nothing is left to be kept back. */
		if (reply && reply->is_given)
			bpf_map_delete_elem(&replies, &key);
		return;
	}
	if (!packet->payload)
		return;
	/* A connection that another server has had and that is back here. */
	if (begins) {
		const struct reply *none = bpf_map_lookup_elem(&no_reply, &zero);
		if (!none || bpf_map_update_elem(&replies, &key, none, BPF_ANY))
			return;
		reply = bpf_map_lookup_elem(&replies, &key);
		if (!reply)
			return;
		reply->end = acknowledged;
	} else if (!reply || (__s32)(end - reply->next) <= 0) {
		return;
	} else if ((reply->is_whole || !reply->is_awaited) && is_content(skb, packet, payload_at, reply)) {
		/* Servers may answer before they have it. */
		reply->is_given = 0;
		reply->next = end;
		return;
	} else if (reply->is_awaited ? reply->is_whole : acknowledged != reply->end) {
		/* One came before the one before it was answered. */
		reply->is_muddled = 1;
	}
	/* The dispatcher would have kept it: whatever it has asked for and not heard of, the connection is the server's. */
	reply->is_given = 0;
	if (!reply->is_awaited)
		*(__u32 *)reply->request = 0;
	if (!reply->is_awaited || bpf_ntohl(packet->tcp.seq) == reply->next)
		note_method(skb, packet, payload_at, reply);
	__be32 last = 0;
	bpf_skb_load_bytes(skb, payload_at + packet->payload - sizeof(last), &last, sizeof(last));
	reply->is_whole = last == bpf_htonl(0x0d0a0d0a);
	reply->next = end;
	reply->is_awaited = 1;
}

/* The last bytes of what the server has said: those of its last packet, `sequence`, and if that's short, of the one before it. */
static __always_inline void note_tail(struct __sk_buff *skb, const struct packet *packet, struct reply *reply, __u32 sequence)
{
	/* The first bytes are the lowest. */
	__u64 before = 0, last = 0;
	__u64 bytes = packet->payload > TAIL_BYTES ? TAIL_BYTES : packet->payload;
	__u32 at = packet->l4 + packet->tcp.doff * 4 + packet->payload - bytes;
	__u32 known = sequence == reply->end ? reply->tail_bytes : 0;
	if (bpf_skb_load_bytes(skb, at, &last, WITHIN(bytes, TAIL_BYTES)) < 0) {
		reply->tail_bytes = 0;
		return;
	}
	__builtin_memcpy(&before, reply->tail, TAIL_BYTES);
	if (known > TAIL_BYTES - bytes) {
		before >>= (known + bytes - TAIL_BYTES) * 8 & 63;
		known = TAIL_BYTES - bytes;
	}
	if (known)
		last = last << (known * 8 & 63) | (before & ((1ULL << (known * 8 & 63)) - 1));
	__builtin_memcpy(reply->tail, &last, TAIL_BYTES);
	reply->tail_bytes = known + bytes;
}

/* What the server says. Returns whether it's to be kept back. */
static __noinline int note_reply(struct __sk_buff *skb)
{
	struct packet packet;
	struct flow_key key;
	read_packet(skb, &packet);
	if (packet.kind != PACKET_TCP)
		return 0;
	turn_round(&packet);
	set_key(&key, &packet);
	struct reply *reply = bpf_map_lookup_elem(&replies, &key);
	if (!reply)
		return 0;
	if (reply->is_given)
		return 1;
	__u32 shown = read_timestamp(skb, &packet);
	if (shown)
		reply->shown = shown;
	__u32 sequence = bpf_ntohl(packet.tcp.seq), payload_at = packet.l4 + packet.tcp.doff * 4;
	if (!packet.payload || (__s32)(sequence + packet.payload - reply->end) <= 0)
		return 0;
	if (reply->is_awaited) {
		__u64 bytes = packet.payload > REPLY_BYTES_MAX ? REPLY_BYTES_MAX : packet.payload;
		if (bpf_skb_load_bytes(skb, payload_at, reply->head, WITHIN(bytes, REPLY_BYTES_MAX)) < 0)
			bytes = 0;
		reply->bytes = bytes;
		reply->begin = sequence;
		reply->tail_bytes = 0;
		reply->is_awaited = 0;
	}
	note_tail(skb, &packet, reply, sequence);
	reply->end = sequence + packet.payload;
	return 0;
}
