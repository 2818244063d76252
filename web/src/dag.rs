//! Where the jobs of a pipeline stand in its drawing: layers by longest path, rows so that edges cross little.

use std::collections::HashMap;

/// One job to place.
#[derive(Debug, Clone)]
pub struct Node {
    pub name: String,
    pub needs: Vec<String>,
}

/// Size of a box, and the space between boxes.
pub const BOX_WIDTH: i32 = 184;
pub const BOX_HEIGHT: i32 = 52;
const GAP_X: i32 = 64;
const GAP_Y: i32 = 20;
const MARGIN: i32 = 8;
/// Room that an edge takes where it passes a layer.
const PASS_HEIGHT: i32 = 12;

/// Upper left corner of a box, in the order of the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub x: i32,
    pub y: i32,
    pub layer: usize,
}

/// An edge as SVG path data, from one node to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edge {
    pub from: usize,
    pub to: usize,
    pub path: String,
}

/// The whole drawing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    pub width: i32,
    pub height: i32,
    pub places: Vec<Place>,
    pub edges: Vec<Edge>,
}

/// A box, or the stretch of an edge that passes a layer between boxes.
struct Item {
    layer: usize,
    height: i32,
    x: i32,
    y: i32,
}

impl Item {
    const fn new(layer: usize, height: i32) -> Self {
        Self { layer, height, x: 0, y: 0 }
    }

    const fn middle(&self) -> i32 {
        self.y + self.height / 2
    }
}

/// Places nodes. Needs that name no node are ignored, and so is the need that would close a cycle.
pub fn layout(nodes: &[Node]) -> Layout {
    let index: HashMap<&str, usize> = nodes.iter().enumerate().map(|(i, node)| (node.name.as_str(), i)).collect();
    let known = |node: &Node| node.needs.iter().filter_map(|need| index.get(need.as_str()).copied()).collect::<Vec<_>>();
    let needs: Vec<Vec<usize>> = nodes.iter().map(known).collect();
    let layer_of = layers(&needs);
    let mut items: Vec<Item> = layer_of.iter().map(|layer| Item::new(*layer, BOX_HEIGHT)).collect();

    // an edge over several layers passes each of them at a place of its own
    let mut chains: Vec<(usize, usize, Vec<usize>)> = Vec::new();
    for (to, needs) in needs.iter().enumerate() {
        for &from in needs.iter().filter(|&&from| layer_of[from] < layer_of[to]) {
            let mut chain = vec![from];
            for layer in layer_of[from] + 1..layer_of[to] {
                chain.push(items.len());
                items.push(Item::new(layer, PASS_HEIGHT));
            }
            chain.push(to);
            chains.push((from, to, chain));
        }
    }

    let layer_count = layer_of.iter().max().map_or(0, |last| last + 1);
    let mut columns: Vec<Vec<usize>> = vec![Vec::new(); layer_count];
    for (item, Item { layer, .. }) in items.iter().enumerate() {
        columns[*layer].push(item);
    }
    let (mut before, mut after) = (vec![Vec::new(); items.len()], vec![Vec::new(); items.len()]);
    for link in chains.iter().flat_map(|(_, _, chain)| chain.windows(2)) {
        before[link[1]].push(link[0]);
        after[link[0]].push(link[1]);
    }
    order_columns(&mut columns, &before, &after);

    let used = |column: &[usize]| column.iter().map(|&item| items[item].height).sum::<i32>() + (column.len() as i32 - 1).max(0) * GAP_Y;
    let heights: Vec<i32> = columns.iter().map(|column| used(column)).collect();
    let height = 2 * MARGIN + heights.iter().copied().max().unwrap_or(0);
    for (layer, column) in columns.iter().enumerate() {
        let mut y = (height - heights[layer]) / 2;
        for &item in column {
            items[item].x = MARGIN + layer as i32 * (BOX_WIDTH + GAP_X);
            items[item].y = y;
            y += items[item].height + GAP_Y;
        }
    }
    let edges = chains.into_iter().map(|(from, to, chain)| Edge { from, to, path: path(&chain, &items) }).collect();
    let places = items.iter().take(nodes.len()).map(|item| Place { x: item.x, y: item.y, layer: item.layer }).collect();
    let width = 2 * MARGIN + layer_count as i32 * BOX_WIDTH + (layer_count as i32 - 1).max(0) * GAP_X;
    Layout { width, height, places, edges }
}

/// The length of the longest chain of needs below each node.
fn layers(needs: &[Vec<usize>]) -> Vec<usize> {
    let mut layer = vec![0; needs.len()];
    // as many rounds as nodes reach a fixed point when there is no cycle; with one, it ends all the same
    for _ in 0..needs.len() {
        let mut changed = false;
        for (node, needs) in needs.iter().enumerate() {
            let wanted = needs.iter().map(|&need| layer[need] + 1).max().unwrap_or(0);
            if wanted > layer[node] && wanted < layer.len() {
                layer[node] = wanted;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    layer
}

/// Sorts each column by the mean row of what its items come from, then backwards by where they lead.
fn order_columns(columns: &mut [Vec<usize>], before: &[Vec<usize>], after: &[Vec<usize>]) {
    let mut row = vec![0usize; before.len()];
    let remember = |column: &[usize], row: &mut Vec<usize>| {
        for (position, &item) in column.iter().enumerate() {
            row[item] = position;
        }
    };
    for column in columns.iter() {
        remember(column, &mut row);
    }
    for _ in 0..4 {
        for column in columns.iter_mut().rev() {
            sort_by_mean(column, after, &row);
            remember(column, &mut row);
        }
        for column in columns.iter_mut() {
            sort_by_mean(column, before, &row);
            remember(column, &mut row);
        }
    }
}

fn sort_by_mean(column: &mut [usize], neighbours: &[Vec<usize>], row: &[usize]) {
    let key = |node: usize| {
        let of = &neighbours[node];
        if of.is_empty() { row[node] as f64 } else { of.iter().map(|&n| row[n] as f64).sum::<f64>() / of.len() as f64 }
    };
    column.sort_by(|&a, &b| key(a).total_cmp(&key(b)).then(a.cmp(&b)));
}

/// A line from box to box: curves between layers, level where it passes one.
fn path(chain: &[usize], items: &[Item]) -> String {
    let mut path = String::new();
    for (position, &item) in chain.iter().enumerate() {
        let item = &items[item];
        let (left, right, y) = (item.x, item.x + BOX_WIDTH, item.middle());
        if position == 0 {
            path.push_str(&format!("M{right} {y}"));
            continue;
        }
        let from = &items[chain[position - 1]];
        let (start, bend) = (from.x + BOX_WIDTH, GAP_X / 2);
        path.push_str(&format!("C{} {} {} {y} {left} {y}", start + bend, from.middle(), left - bend));
        if position + 1 < chain.len() {
            path.push_str(&format!("H{right}"));
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, needs: &[&str]) -> Node {
        Node { name: name.to_owned(), needs: needs.iter().map(|&n| n.to_owned()).collect() }
    }

    #[test]
    fn layers_follow_the_longest_path() {
        let nodes = [node("a", &[]), node("b", &["a"]), node("c", &["b"]), node("d", &["a", "c"]), node("e", &["a"])];
        let layout = layout(&nodes);
        assert_eq!(layout.places.iter().map(|p| p.layer).collect::<Vec<_>>(), [0, 1, 2, 3, 1]);
        assert_eq!(layout.edges.len(), 5);
        for edge in &layout.edges {
            assert!(layout.places[edge.from].x + BOX_WIDTH < layout.places[edge.to].x, "edges go to the right");
        }
    }

    #[test]
    fn long_edges_pass_beside_boxes() {
        let layout = layout(&[node("a", &[]), node("b", &["a"]), node("c", &["a", "b"])]);
        let long = layout.edges.iter().find(|edge| edge.from == 0 && edge.to == 2).unwrap();
        // level through the middle layer, at a height that is not inside of the box there
        let (before, _) = long.path.split_once('H').unwrap();
        let y: i32 = before.rsplit(' ').next().unwrap().parse().unwrap();
        let middle = layout.places[1];
        assert!(y < middle.y || y > middle.y + BOX_HEIGHT, "{y} {middle:?}");
    }

    #[test]
    fn boxes_do_not_overlap_and_fit() {
        let mut nodes = vec![node("root", &[])];
        nodes.extend((0..7).map(|i| node(&format!("leaf{i}"), &["root"])));
        let layout = layout(&nodes);
        for (i, a) in layout.places.iter().enumerate() {
            assert!(a.x >= 0 && a.y >= 0 && a.x + BOX_WIDTH <= layout.width && a.y + BOX_HEIGHT <= layout.height);
            for b in &layout.places[i + 1..] {
                assert!(a.x != b.x || (a.y - b.y).abs() >= BOX_HEIGHT, "{a:?} {b:?}");
            }
        }
    }

    #[test]
    fn parallel_chains_do_not_cross() {
        let nodes = [node("a", &[]), node("b", &[]), node("b2", &["b"]), node("a2", &["a"])];
        let places = layout(&nodes).places;
        assert_eq!((places[0].y < places[1].y), (places[3].y < places[2].y));
    }

    #[test]
    fn cycles_and_unknown_needs_end() {
        let layout = layout(&[node("a", &["b"]), node("b", &["a", "ghost"]), node("c", &["c"])]);
        assert_eq!(layout.places.len(), 3);
        assert!(super::layout(&[]).places.is_empty());
    }
}
