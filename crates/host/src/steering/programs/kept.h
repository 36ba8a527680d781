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

/* Where one is put together: too large for the stack. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kept_request);
} keeping SEC(".maps");

/* Whether a client says again what is kept: what came behind it stays. */
static __always_inline int is_kept(const struct packet *packet, const struct kept_request *kept)
{
	__u32 known = bpf_ntohl(packet->tcp.seq) - kept->sequence;
	return known < kept->bytes && packet->payload <= kept->bytes - known;
}

/* Keeps what follows without a gap on what is kept, where its client has heard nothing in between: more of a request, or one of several. Whether it is that, and
 * has room: the verifier knows no sum of two numbers, so that each of both has half of it. */
static __always_inline int keep_more(struct __sk_buff *skb, const struct packet *packet, struct kept_request *kept)
{
	__u64 known = kept->bytes, bytes = packet->payload;
	int follows = bpf_ntohl(packet->tcp.seq) == kept->sequence + kept->bytes;
	AS_IT_IS(known);
	AS_IT_IS(bytes);
	if (!follows || bpf_ntohl(packet->tcp.ack_seq) != kept->acknowledged || known >= KEPT_BYTES_MAX / 2)
		return 0;
	if (bytes < 1 || bytes > KEPT_BYTES_MAX / 2)
		return 0;
	__u8 *end = kept->payload + (known & (KEPT_BYTES_MAX / 2 - 1));
	if (bpf_skb_load_bytes(skb, packet->l4 + packet->tcp.doff * 4, end, WITHIN(bytes, KEPT_BYTES_MAX / 2)) < 0)
		return 0;
	kept->bytes = known + bytes;
	return 1;
}

/* Keeps what a client says. What is too long isn't kept, and what was is known by its numbers not to be the last. */
static __noinline void keep_request(struct __sk_buff *skb, const struct packet *packet)
{
	__u32 zero = 0;
	struct flow_key key;
	struct kept_request *kept = bpf_map_lookup_elem(&keeping, &zero);
	if (!packet || !kept)
		return;
	set_key(&key, packet);
	struct kept_request *last = bpf_map_lookup_elem(&kept_requests, &key);
	if (last && (is_kept(packet, last) || keep_more(skb, packet, last)))
		return;
	__u64 bytes = packet->payload;
	AS_IT_IS(bytes);
	if (bytes < 1 || bytes > KEPT_BYTES_MAX)
		return;
	if (bpf_skb_load_bytes(skb, packet->l4 + packet->tcp.doff * 4, kept->payload, WITHIN(bytes, KEPT_BYTES_MAX)) < 0)
		return;
	kept->sequence = bpf_ntohl(packet->tcp.seq);
	kept->acknowledged = bpf_ntohl(packet->tcp.ack_seq);
	kept->bytes = bytes;
	bpf_map_update_elem(&kept_requests, &key, kept, BPF_ANY);
}
