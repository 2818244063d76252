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

/// Places nodes. Needs that name no node are ignored, and so is the need that would close a cycle.
pub fn layout(nodes: &[Node]) -> Layout {
    let index: HashMap<&str, usize> = nodes.iter().enumerate().map(|(i, node)| (node.name.as_str(), i)).collect();
    let needs: Vec<Vec<usize>> = nodes
        .iter()
        .enumerate()
        .map(|(i, node)| node.needs.iter().filter_map(|n| index.get(n.as_str()).copied()).filter(|&n| n != i).collect())
        .collect();

    let layer_of = layers(&needs);
    let layer_count = layer_of.iter().max().map_or(0, |last| last + 1);
    let mut columns: Vec<Vec<usize>> = vec![Vec::new(); layer_count];
    for (node, &layer) in layer_of.iter().enumerate() {
        columns[layer].push(node);
    }
    order_columns(&mut columns, &needs);

    let tallest = columns.iter().map(Vec::len).max().unwrap_or(0) as i32;
    let height = (2 * MARGIN + tallest * BOX_HEIGHT + (tallest - 1).max(0) * GAP_Y).max(2 * MARGIN);
    let mut places = vec![Place { x: 0, y: 0, layer: 0 }; nodes.len()];
    for (layer, column) in columns.iter().enumerate() {
        let count = column.len() as i32;
        let used = count * BOX_HEIGHT + (count - 1) * GAP_Y;
        let top = (height - used) / 2;
        for (row, &node) in column.iter().enumerate() {
            let x = MARGIN + layer as i32 * (BOX_WIDTH + GAP_X);
            places[node] = Place { x, y: top + row as i32 * (BOX_HEIGHT + GAP_Y), layer };
        }
    }
    let edges = needs
        .iter()
        .enumerate()
        .flat_map(|(to, needs)| needs.iter().map(move |&from| (from, to)))
        .filter(|&(from, to)| layer_of[from] < layer_of[to])
        .map(|(from, to)| Edge { from, to, path: curve(places[from], places[to]) })
        .collect();
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

/// Sorts each column by the mean row of what its nodes need, then backwards by what needs them.
fn order_columns(columns: &mut [Vec<usize>], needs: &[Vec<usize>]) {
    let mut needed_by: Vec<Vec<usize>> = vec![Vec::new(); needs.len()];
    for (node, needs) in needs.iter().enumerate() {
        for &need in needs {
            needed_by[need].push(node);
        }
    }
    let mut row = vec![0usize; needs.len()];
    let remember = |column: &[usize], row: &mut Vec<usize>| {
        for (position, &node) in column.iter().enumerate() {
            row[node] = position;
        }
    };
    for column in columns.iter() {
        remember(column, &mut row);
    }
    for _ in 0..4 {
        for column in columns.iter_mut() {
            sort_by_mean(column, needs, &row);
            remember(column, &mut row);
        }
        for column in columns.iter_mut().rev() {
            sort_by_mean(column, &needed_by, &row);
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

fn curve(from: Place, to: Place) -> String {
    let (x1, y1) = (from.x + BOX_WIDTH, from.y + BOX_HEIGHT / 2);
    let (x2, y2) = (to.x, to.y + BOX_HEIGHT / 2);
    let bend = GAP_X / 2 + (x2 - x1 - GAP_X) / 3;
    format!("M{x1} {y1}C{} {y1} {} {y2} {x2} {y2}", x1 + bend, x2 - bend)
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
