/* What clients have said last at nodes that are leat: of a request that such a node's kernel has acknowledged and its process never answered, there is nothing
 * anywhere else when it dies. Which of it is needed then, leat decides. */
#pragma once
#include "packet.h"

/* Connections that say something else within the time in which a death is noticed. The oldest make room. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, KEPT_REQUESTS_MAX);
	__type(key, struct flow_key);
	__type(value, struct kept_request);
} kept_requests SEC(".maps");

/* What there's no room for there. Few say so much at once; of those that do, each has room for four times as much. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, KEPT_RESTS_MAX);
	__type(key, struct flow_key);
	__type(value, struct kept_rest);
} kept_rests SEC(".maps");

/* Where one of each is put together: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kept_request);
} keeping SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kept_rest);
} keeping_rest SEC(".maps");

/* Whether a client says again what it has said last: what came behind it stays. */
static __always_inline int is_known(const struct packet *packet, const struct kept_request *kept)
{
	__u32 known = bpf_ntohl(packet->tcp.seq) - kept->sequence, said = kept->bytes + kept->more;
	return known < said && packet->payload <= said - known;
}

static __always_inline __u32 payload_at(const struct packet *packet)
{
	return packet->l4 + packet->tcp.doff * 4;
}

/* Whether a request begins here that may be answered anew. */
static __always_inline int begins_anew(struct __sk_buff *skb, const struct packet *packet)
{
	__be32 word = 0;
	if (bpf_skb_load_bytes(skb, payload_at(packet), &word, sizeof(word)) < 0)
		return 0;
	return word == BYTES_4('G', 'E', 'T', ' ') || word == BYTES_4('H', 'E', 'A', 'D') || word == BYTES_4('O', 'P', 'T', 'I');
}

/* Keeps what a packet says from its byte `from` on, behind what is kept of it: of all that follows on that, and begins with `start`, the next. Whether that's all
 * kept now. The verifier knows no sum of two numbers, so that what is known and what is new have half of the room each. */
static __always_inline int keep_rest(struct __sk_buff *skb, const struct packet *packet, const struct flow_key *key, __u32 from, __u32 start)
{
	__u32 zero = 0;
	__u64 known = bpf_ntohl(packet->tcp.seq) + from - start, bytes = packet->payload - from;
	struct kept_rest *rest = known ? bpf_map_lookup_elem(&kept_rests, key) : bpf_map_lookup_elem(&keeping_rest, &zero);
	AS_IT_IS(known);
	AS_IT_IS(bytes);
	if (!rest || bytes < 1)
		return 0;
	if (known) {
		if (rest->sequence != start || rest->bytes != known || known >= KEPT_REST_BYTES_MAX / 2 || bytes > KEPT_REST_BYTES_MAX / 2)
			return 0;
		__u8 *end = rest->payload + (known & (KEPT_REST_BYTES_MAX / 2 - 1));
		if (bpf_skb_load_bytes(skb, payload_at(packet) + from, end, WITHIN(bytes, KEPT_REST_BYTES_MAX / 2)) < 0)
			return 0;
		rest->bytes = known + bytes;
		return 1;
	}
	if (bytes > KEPT_REST_BYTES_MAX)
		bytes = KEPT_REST_BYTES_MAX;
	if (bpf_skb_load_bytes(skb, payload_at(packet) + from, rest->payload, WITHIN(bytes, KEPT_REST_BYTES_MAX)) < 0)
		return 0;
	rest->sequence = start;
	rest->bytes = bytes;
	return bpf_map_update_elem(&kept_rests, key, rest, BPF_ANY) == 0 && bytes == packet->payload - from;
}

/* Keeps what follows without a gap on what is kept, where its client has heard nothing in between: more of a request, or one of several. Whether it's that. Of
 * what there's no room for only the length is kept, unless it's worth more than what comes before it: the method that is there says what may become of a request. */
static __always_inline int keep_more(struct __sk_buff *skb, const struct packet *packet, const struct flow_key *key, struct kept_request *kept)
{
	__u32 start = kept->sequence + kept->bytes;
	int follows = bpf_ntohl(packet->tcp.seq) == start + kept->more;
	if (!follows || bpf_ntohl(packet->tcp.ack_seq) != kept->acknowledged)
		return 0;
	if (!keep_rest(skb, packet, key, 0, start) && begins_anew(skb, packet))
		return 0;
	kept->more += packet->payload;
	return 1;
}

/* Keeps what a client says, or the beginning of what is too long. */
static __noinline void keep_request(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 zero = 0;
	struct flow_key key;
	struct kept_request *kept = bpf_map_lookup_elem(&keeping, &zero);
	if (!packet || !kept)
		return;
	set_key(&key, packet);
	struct kept_request *last = bpf_map_lookup_elem(&kept_requests, &key);
	if (last && (is_known(packet, last) || keep_more(skb, packet, &key, last)))
		return;
	__u64 bytes = packet->payload;
	AS_IT_IS(bytes);
	if (bytes < 1)
		return;
	if (bytes > KEPT_BYTES_MAX)
		bytes = KEPT_BYTES_MAX;
	if (bpf_skb_load_bytes(skb, payload_at(packet), kept->payload, WITHIN(bytes, KEPT_BYTES_MAX)) < 0)
		return;
	kept->sequence = bpf_ntohl(packet->tcp.seq);
	kept->acknowledged = bpf_ntohl(packet->tcp.ack_seq);
	kept->bytes = bytes;
	kept->more = packet->payload - bytes;
	if (kept->more)
		keep_rest(skb, packet, &key, bytes, kept->sequence + bytes);
	bpf_map_update_elem(&kept_requests, &key, kept, BPF_ANY);
}
